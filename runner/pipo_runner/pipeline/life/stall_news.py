"""What is told of a stall: the variable `stall`, and the event's text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipo.durations import show
from pipo.lang.printing import mixed_text
from pipo.lang.templates import Template
from pipo_runner.pipeline.flow.units import Unit


def oldest_of(moving: Sequence[Unit]) -> Unit:
    """The unit whose packet was received first."""
    return min(moving, key=lambda unit: unit.received_at)


def stall_facts(moving: Sequence[Unit], quiet_ms: float, now_ms: int) -> dict[str, Any]:
    """The variable `stall` of the message, and the object of the event (edge 231, 232).

    `pending` is how many packets should be moving, by themselves or in copies. `duration` and
    `age` are texts; a step that has not failed yet has no `last_error`.
    """
    oldest = oldest_of(moving)
    return {
        "pending": len({unit.packet_id for unit in moving}),
        "duration": show(quiet_ms),
        "oldest": {
            "packet_id": oldest.packet_id,
            "node": oldest.cursor,
            "age": show(now_ms - oldest.received_at),
            "attempt": oldest.attempt,
            "last_error": oldest.last_error or None,
        },
    }


def stall_text(
    template: Template | None,
    scope: Mapping[str, Any],
    stall: Mapping[str, Any],
    redact: Callable[[str], str],
) -> str:
    """The event's text. A template that fails or says nothing costs the stall no word (edge 236)."""
    if template is None:
        return redact(_plain(stall))
    try:
        text = mixed_text(template.render({**scope, "stall": stall})).strip()
    except Exception as broken:
        return redact(f"{_plain(stall)} [the message template failed: {broken}]")
    return redact(text or _plain(stall))


def _plain(stall: Mapping[str, Any]) -> str:
    oldest = stall["oldest"]
    error = f", last error: {oldest['last_error']}" if oldest["last_error"] else ""
    return (
        f"stalled: {stall['pending']} packet(s) pending and none delivered for {stall['duration']};"
        f" the oldest, {oldest['packet_id']} at '{oldest['node']}', is {oldest['age']} old"
        f" (attempt {oldest['attempt']}{error})"
    )
