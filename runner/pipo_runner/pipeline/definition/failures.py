"""How a failed step is told: the error's text, and the error as it is journaled.

A policy that itself breaks (its message cannot be rendered) falls back to the
plain message with a note; it never costs the unit (edge 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipo.connectors.contract import ConnectorError
from pipo.durations import show
from pipo.journal.changes import PacketError
from pipo.journal.states import Code
from pipo.lang.faults import LanguageError
from pipo.lang.printing import mixed_text
from pipo.lang.templates import Template
from pipo_runner.pipeline.definition.rendering import RenderError

# An error stands on the packet, in its events and in every listing; what it quotes may be long.
MESSAGE_CHARS_MAX: Final = 8 * 1024


class DataDamaged(Exception):
    """What the journal holds of a packet is not what was written there; the text says where."""


# What a step may raise for a packet's own reasons; anything else is a bug of ours.
PACKET_ERRORS = (ConnectorError, LanguageError, RenderError, DataDamaged)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed step of one unit. `where` is what people read: a node id, `output`, `delivered`."""

    code: Code
    where: str
    message: str
    attempts: int
    elapsed_ms: float = 0.0
    rule: str | None = None

    def scope(self) -> dict[str, Any]:
        """The variable `error` of a message template."""
        return {
            "message": self.message,
            "code": self.code,
            "rule": self.rule,
            "node": self.where,
            "attempts": self.attempts,
            "elapsed": show(self.elapsed_ms),
        }


def describe(error: BaseException) -> str:
    """The text of a step's error: its message, and the hint behind a dash."""
    if isinstance(error, ConnectorError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, PACKET_ERRORS):
        return str(error)
    return f"{type(error).__name__}: {error}; this is a bug in Pipo, please report it"


def told(message: str, redact: Callable[[str], str]) -> str:
    """A text as it may be journaled: first redacted, then cut, so that no part of a secret is left."""
    text = redact(message)
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[: MESSAGE_CHARS_MAX - 1]}…"


def packet_error(
    failure: Failure,
    template: Template | None,
    scope: Callable[[], Mapping[str, Any]],
    redact: Callable[[str], str],
) -> PacketError:
    """The error as it is journaled, its message rendered, redacted and cut."""
    message = failure.message
    if template is not None:
        try:
            rendered = template.render({**scope(), "error": failure.scope()})
            message = mixed_text(rendered) or failure.message
        except Exception as broken:
            message = f"{failure.message} [the message template failed: {broken}]"
    return PacketError(
        code=failure.code,
        message=told(message, redact),
        rule=failure.rule,
        node=failure.where,
        attempts=failure.attempts,
    )
