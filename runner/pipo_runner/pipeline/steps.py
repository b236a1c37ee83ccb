"""The taps and transforms of one pipeline process, by their connectors.

Each is built once, whichever versions and nodes use it, and opened before it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipo.connectors.contract import Step


class Steps:
    """`build(role, name)` makes a connector's step."""

    def __init__(self, build: Callable[[str, str], Step]) -> None:
        self._build = build
        self._built: dict[tuple[str, str], Step] = {}

    def of(self, role: str, name: str) -> Step:
        """The step of a connector. Raises: PipoError, if it is not built yet."""
        step = self._built.get((role, name))
        if step is None:
            step = self._built[role, name] = self._build(role, name)
        return step

    async def open(self) -> None:
        """Opens those that reach outside. Safe again, after more were asked for."""
        for step in self._built.values():
            if not step.pure:
                await step.open()

    async def close(self) -> None:
        await asyncio.gather(*(step.close() for step in self._built.values() if not step.pure))
