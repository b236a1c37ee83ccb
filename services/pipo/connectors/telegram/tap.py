"""Sends a message for each packet that passes, as the output does, with a bot of its own choice.

At least once: a step that runs again sends again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pipo.connectors.contract import Context, Step, StepCall, WriteUnit
from pipo.connectors.telegram.output import TIMEOUT_S, TelegramOutput


def build(context: Context) -> Step:
    return TelegramTap(context)


class TelegramTap:
    """The chat of a packet's origin stays its chat, whatever steps have made of its data."""

    pure: Literal[False] = False

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._output = TelegramOutput(context, timeout_s=timeout_s, what="the tap telegram")

    async def open(self) -> None:
        await self._output.open({})

    def require(self, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidState, when no bot is set up; PipoError, when its token is none."""
        self._output.require(settings)

    async def run(self, call: StepCall) -> None:
        unit = WriteUnit(
            call.unit,
            call.key,
            call.data,
            call.settings,
            "first",
            trigger=call.meta["trigger"],
            source=call.meta["source"],
        )
        (result,) = (await self._output.write([unit], atomic=False)).results
        if isinstance(result, Exception):
            raise result

    async def close(self) -> None:
        await self._output.close()
