"""The taps and transforms of one pipeline process, by their connectors.

Each is built once, whichever versions and nodes use it, and opened before it runs. Versions
whose files lie in different folders have steps of their own, and so have those whose functions'
texts differ: a step knows its folder, and a function its module.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pipo.connectors.contract import Demanding, Step
from pipo_runner.pipeline.definition.versions import BuildStep, Edition

FUNCTION: Final = "fn."


class Steps:
    """`build(role, name, edition)` makes a connector's step, or a function's."""

    def __init__(self, build: BuildStep) -> None:
        self._build = build
        self._built: dict[tuple[str, str, tuple[str, str]], Step] = {}

    def of(self, role: str, name: str, edition: Edition) -> Step:
        """The step of a connector or function. Raises: PipoError, if it is not built yet."""
        own = (str(edition.folder), edition.texts.hash if name.startswith(FUNCTION) else "")
        step = self._built.get((role, name, own))
        if step is None:
            step = self._built[role, name, own] = self._build(role, name, edition)
        return step

    async def open(self) -> None:
        """Opens those that reach outside. Safe again, after more were asked for."""
        for step in self._built.values():
            if not step.pure:
                await step.open()

    def require(self, edition: Edition) -> None:
        """Passes when a version's steps have what they need. Raises: PipoError, if one has not."""
        for node in edition.pipeline.nodes:
            if node.kind in ("tap", "transform"):
                step = self.of(node.kind, node.uses, edition)
                if isinstance(step, Demanding):
                    step.require(node.settings)

    async def close(self) -> None:
        await asyncio.gather(*(step.close() for step in self._built.values() if not step.pure))
