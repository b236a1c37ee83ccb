"""Runs a program for each packet; what `result` names of the run becomes its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pipo.connectors.contract import Context, Step, StepCall
from pipo.connectors.exec import outcome
from pipo.connectors.exec.runs import Runs


def build(context: Context) -> Step:
    return ExecTransform(context)


class ExecTransform:
    """A result is masked before it becomes data: a program may print what it was given."""

    pure: Literal[False] = False

    def __init__(self, context: Context) -> None:
        self._mask = context.mask
        self._runs = Runs(context)

    async def open(self) -> None:
        await self._runs.open()

    def require(self, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidState, for a command that is not there."""
        self._runs.require(settings)

    async def run(self, call: StepCall) -> Any:
        kind = call.settings.get("result", "info")
        kept = outcome.INFO_BYTES + outcome.MARGIN_BYTES if kind == "info" else outcome.OUTPUT_BYTES
        program, ended = await self._runs.run(call, stdout_bytes=kept)
        return outcome.result(kind, program, ended, self._mask)

    async def close(self) -> None:
        await self._runs.close()
