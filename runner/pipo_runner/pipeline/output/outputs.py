"""The outputs of one pipeline process, by their connectors.

A packet is written as the version that accepted it says. After a change from one
connector to another both are open, until no packet of the older version is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from pipo.connectors.contract import Demanding, Output
from pipo_runner.pipeline.definition.plan import Plan


class Outputs:
    """Each connector's output once; `build` makes one from the connector's name."""

    def __init__(self, build: Callable[[str], Output]) -> None:
        self._build = build
        self._open: dict[str, Output] = {}

    async def open(self, names: Iterable[str], marks: Mapping[str, int]) -> None:
        """Opens those of the named connectors. Raises: PipoError, if one is not built yet."""
        for name in names:
            if name not in self._open:
                output = self._build(name)
                await output.open(marks)
                self._open[name] = output

    def of(self, plan: Plan) -> Output:
        """Where the packets of a version go."""
        return self._open[plan.pipeline.output.to]

    def require(self, plan: Plan) -> None:
        """Passes when a version's output has what it needs. Raises: PipoError, if it has not."""
        output = self.of(plan)
        if isinstance(output, Demanding):
            output.require(plan.pipeline.output.settings)

    async def close(self) -> None:
        await asyncio.gather(*(output.close() for output in self._open.values()))
