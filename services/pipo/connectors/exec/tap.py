"""Runs a program for each packet that passes; what it prints is nobody's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pipo.connectors.contract import Context, Step, StepCall
from pipo.connectors.exec.outcome import INFO_BYTES, MARGIN_BYTES
from pipo.connectors.exec.runs import Runs


def build(context: Context) -> Step:
    return ExecTap(context)


class ExecTap:
    """Of the run only its success counts, and the files of `outputs`."""

    pure: Literal[False] = False

    def __init__(self, context: Context) -> None:
        self._runs = Runs(context)

    async def open(self) -> None:
        await self._runs.open()

    def require(self, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidState, for a command that is not there."""
        self._runs.require(settings)

    async def run(self, call: StepCall) -> None:
        await self._runs.run(call, stdout_bytes=INFO_BYTES + MARGIN_BYTES)

    async def close(self) -> None:
        await self._runs.close()
