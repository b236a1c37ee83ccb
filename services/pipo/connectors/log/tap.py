"""Writes one line to the pipeline's log, and the same to the packet's trail."""

from __future__ import annotations

from typing import Literal

from pipo.connectors.contract import Context, Step, StepCall
from pipo.payload import encode


def build(context: Context) -> Step:
    return LogTap(context)


class LogTap:
    """A step that runs again prints again (edge 103)."""

    pure: Literal[True] = True

    def __init__(self, context: Context) -> None:
        self._log = context.log

    def run(self, call: StepCall) -> None:
        level = call.settings.get("level", "info")
        message = call.settings.get("message", call.data)
        text = message if isinstance(message, str) else encode(message).decode()
        self._log(level, text, node=call.node, packet_id=call.unit)
        call.notes.append(("log", {"level": level, "message": text}))
