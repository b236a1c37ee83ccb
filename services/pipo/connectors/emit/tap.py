"""An event of the author's own, in the packet's trail and on the event stream.

It is journaled just before the step's own event, and only with it: what a failed attempt
emitted is thrown away (edge 102).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from pipo import payload
from pipo.connectors.contract import Context, Refused, Step, StepCall
from pipo.journal.states import OWN_EVENTS
from pipo.lang.printing import mixed_text
from pipo.telemetry.redaction import mapped

NAME_CHARACTERS = 100
# An event travels in one message, of 1 MiB at most, with others around it.
DETAIL_BYTES = 512 * 1024
_NAME = re.compile(r"\S+")
# Beside what is journaled of a unit: what tells of the pipeline itself.
_FAMILIES = ("pipeline.", "version.", "proposal.")
_OTHERS = ("log", "output.batch_split")


def build(context: Context) -> Step:
    return EmitTap(context)


class EmitTap:
    """Nothing outside sees it until it is on disk with the step."""

    pure: Literal[True] = True

    def __init__(self, context: Context) -> None:
        self._mask = context.mask

    def run(self, call: StepCall) -> None:
        """Raises: Refused, for a name that no event may have, or too much detail."""
        name = _name(call.settings["event"], self._mask)
        detail = mapped(call.settings.get("detail"), self._mask)
        size = len(payload.encode(detail))
        if size > DETAIL_BYTES:
            raise Refused(
                f"the detail of {name} has {size} bytes; an event carries up to 512 KB",
                hint="name in `detail` what is needed of `data`",
            )
        call.notes.append((name, detail))


def _name(value: Any, mask: Callable[[str], str]) -> str:
    name = "" if isinstance(value, (dict, list)) else mask(mixed_text(value))
    if len(name) > NAME_CHARACTERS or not _NAME.fullmatch(name) or not name.isprintable():
        raise Refused(
            f"`event` renders to {ascii(name)[:60]}, which no event can be called",
            hint=f"a name such as order.late: no blanks, up to {NAME_CHARACTERS} characters",
        )
    if name in OWN_EVENTS or name in _OTHERS or name.startswith(_FAMILIES):
        raise Refused(
            f"{name} is an event of Pipo's own", hint="put a word of yours before it: my.event"
        )
    return name
