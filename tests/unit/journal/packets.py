"""Changes for the journal's tests, with everything that a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipo.journal.changes import (
    OUTPUT,
    SAME,
    Accepted,
    Change,
    DeadLettered,
    Delivered,
    Dropped,
    Filtered,
    PacketError,
    Rejected,
    Retried,
    Stepped,
    Unverified,
    VersionAdded,
    Writing,
    Written,
)

DATA = b'{"n":1}'
AT = 1_790_000_000_000


def packet_id(n: int) -> str:
    """The nth id: 26 letters, in order."""
    return f"01M4KTMCZ7{n:016d}"


def version(number: int = 1, **given: Any) -> VersionAdded:
    made: dict[str, Any] = {
        "version": number,
        "source": f"pipo: {number}",
        "compiled": b"\x00\xffcompiled",
        "files": {"a.fn.py": "x = 1\n"},
        "hash": f"h{number}",
        "author": "ada",
        "author_kind": "human",
        "reason": "first start",
        "at": AT,
    }
    return VersionAdded(**made | given)


def error(code: str = "node.failed", node: str = "shape", attempts: int = 1) -> PacketError:
    return PacketError(code, "it broke", None, node, attempts)


def accepted(n: int, **given: Any) -> Accepted:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "version": 1,
        "input": "input",
        "trigger": "push",
        "source": "cli",
        "data": DATA,
        "cursor": "shape",
        "queue_seq": n,
        "at": AT + n,
        "state": {},
    }
    return Accepted(**made | given)


def rejected(n: int, **given: Any) -> Rejected:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "version": 1,
        "input": "input",
        "trigger": "push",
        "source": "cli",
        "data": DATA,
        "error": PacketError("input.invalid", "no age", "data.age > 1", "input", 1),
        "at": AT + n,
        "state": {},
    }
    return Rejected(**made | given)


def stepped(n: int, **given: Any) -> Stepped:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "node": "shape",
        "cursor": OUTPUT,
        "at": AT + n + 2,
        "ms": 1.5,
        "before": SAME,
        "after": SAME,
    }
    return Stepped(**made | given)


def retried(n: int, attempt: int = 1, node: str = "shape") -> Retried:
    return Retried(packet_id(n), node, attempt, 100.0, AT + n + 102, "it broke", AT + n + 2)


def writing(n: int, key: str | None = None) -> Writing:
    return Writing(packet_id(n), key, AT + n + 3)


def written(n: int, result: bytes = b'{"rowid":7}', size: int = 1) -> Written:
    return Written(packet_id(n), result, 2.5, size, AT + n + 4)


def delivered(n: int, evidence: bytes | None = None, **given: Any) -> Delivered:
    return Delivered(packet_id(n), evidence, AT + n + 5, **given)


def unverified(n: int, **given: Any) -> Unverified:
    return Unverified(
        packet_id(n), error("delivery.unverified", "delivered", 3), AT + n + 5, **given
    )


def filtered(n: int) -> Filtered:
    return Filtered(packet_id(n), "adults", 0.5, AT + n + 4)


def dropped(n: int) -> Dropped:
    return Dropped(packet_id(n), error(), "shape", AT + n + 4, 3.0)


def dead_lettered(n: int, node: str = "shape", **given: Any) -> DeadLettered:
    shown = {"$output": "output", "$verify": "delivered"}.get(node, node)
    return DeadLettered(packet_id(n), error(node=shown), node, AT + n + 4, **given)


# One example of every change of a unit, by its name.
EXAMPLES: Mapping[str, Callable[[int], Change]] = {
    "Accepted": accepted,
    "Rejected": rejected,
    "Stepped": stepped,
    "Retried": retried,
    "Writing": writing,
    "Written": written,
    "Delivered": delivered,
    "Unverified": unverified,
    "Filtered": filtered,
    "Dropped": dropped,
    "DeadLettered": dead_lettered,
}

# How a unit comes into each state that this version knows a way to; None is no unit at all.
WAYS: Mapping[str | None, Callable[[int], list[Change]]] = {
    None: lambda n: [],
    "accepted": lambda n: [accepted(n)],
    "processing": lambda n: [accepted(n), stepped(n, cursor="next")],
    "writing": lambda n: [accepted(n), stepped(n)],
    "verifying": lambda n: [accepted(n), written(n)],
    "delivered": lambda n: [accepted(n), written(n), delivered(n)],
    "filtered": lambda n: [accepted(n), filtered(n)],
    "dead_lettered": lambda n: [accepted(n), dead_lettered(n)],
    "rejected": lambda n: [rejected(n)],
}
