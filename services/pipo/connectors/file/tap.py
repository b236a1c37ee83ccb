"""Appends what passes to a file, or replaces it, in the formats of the output.

At least once: a step that runs again writes again, and nothing is looked up.
"""

from __future__ import annotations

from typing import Literal

from pipo.connectors.contract import Context, Step, StepCall, WriteUnit
from pipo.connectors.file.output import FileOutput


def build(context: Context) -> Step:
    return FileTap(context)


class FileTap:
    """A record has the id of the packet, or of the copy, that passed."""

    pure: Literal[False] = False

    def __init__(self, context: Context) -> None:
        self._output = FileOutput(context.log)

    async def open(self) -> None:
        await self._output.open({})

    async def run(self, call: StepCall) -> None:
        self._output.prepare(call.data, call.settings, call.unit)
        unit = WriteUnit(call.unit, call.unit, call.data, call.settings, "first")
        (result,) = (await self._output.write([unit], atomic=False)).results
        if isinstance(result, Exception):
            raise result

    async def close(self) -> None:
        await self._output.close()
