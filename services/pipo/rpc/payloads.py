"""The payloads of a trace, masked or withheld before they go out.

A packet's own data is shown as it is, but for texts that equal a secret (decision 43). Where a
secret is not known to the one who answers, none of the payloads can be shown safely.
Source: R41, edge 406.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message

from pipo import payload
from pipo.rpc.stubs import packet_pb2

OF_PACKET = ("data", "result", "evidence")
OF_STEP = ("data",)


def mask(trace: packet_pb2.Trace, masked: Callable[[Any], Any]) -> None:
    """Puts `masked(value)` in the place of each payload's value that it changes.

    A payload that is damaged in the journal stays as it is.
    """
    for message, field, _ in _payloads(trace):
        try:
            value = payload.decode_own(getattr(message, field))
        except payload.BadPayload:
            continue
        shown = masked(value)
        # What has nothing to hide keeps its bytes: numbers are printed as they were stored.
        if shown != value:
            setattr(message, field, payload.encode(shown))


def withhold(trace: packet_pb2.Trace) -> None:
    """Takes every payload out and lists where it stood."""
    for message, field, place in list(_payloads(trace)):
        message.ClearField(field)
        trace.withheld.append(place)


def _payloads(trace: packet_pb2.Trace) -> Iterator[tuple[Message, str, str]]:
    """Each message that holds one, the field, and where that is in the trace."""
    yield from _of(trace.packet, OF_PACKET, "packet")
    for number, step in enumerate(trace.steps):
        yield from _of(step, OF_STEP, f"steps[{number}]")
    for copy in trace.copies:
        for number, step in enumerate(copy.steps):
            yield from _of(step, OF_STEP, f"copies[{copy.branch}].steps[{number}]")


def _of(
    message: Message, fields: tuple[str, ...], place: str
) -> Iterator[tuple[Message, str, str]]:
    for field in fields:
        if message.HasField(field):
            yield message, field, f"{place}.{field}"
