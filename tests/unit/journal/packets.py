"""Changes for the journal's tests, with everything that a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipo.journal.changes import (
    OUTPUT,
    SAME,
    Accepted,
    Acked,
    AwaitingAck,
    Batched,
    Change,
    Cleared,
    Copy,
    DeadLettered,
    Delivered,
    Dropped,
    Escalated,
    Expired,
    FannedOut,
    Filtered,
    Held,
    Looped,
    PacketError,
    Purged,
    Rejected,
    Replayed,
    Rerun,
    Resolved,
    Retried,
    Stepped,
    Unheld,
    Unverified,
    VersionAdded,
    Writing,
    Written,
)
from pipo.journal.states import Code

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


def error(code: Code = "node.failed", node: str = "shape", attempts: int = 1) -> PacketError:
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


def looped(n: int, **given: Any) -> Looped:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "node": "again",
        "back_to": "shape",
        "at": AT + n + 2,
        "ms": 1.5,
        "before": SAME,
        "after": SAME,
    }
    return Looped(**made | given)


def copies(n: int, *branches: str) -> tuple[Copy, ...]:
    """Copies that go on at a node of their name, or at the output."""
    cursors = [branch.rpartition("/")[2] for branch in branches]
    return tuple(
        Copy(branch, OUTPUT if cursor == "output" else cursor, 100 * n + i)
        for i, (branch, cursor) in enumerate(zip(branches, cursors, strict=True), start=1)
    )


def copy_id(n: int, branch: str) -> str:
    return f"{packet_id(n)}:{branch}"


def fanned_out(n: int, *branches: str, unit: str = "", data: bytes = DATA) -> FannedOut:
    born = copies(n, *(branches or ("a", "b")))
    return FannedOut(unit or packet_id(n), "shape", born, data, AT + n + 3)


def of_copy(change: Any, n: int, branch: str) -> Any:
    """The same change, of a copy."""
    return replace(change, unit=copy_id(n, branch))


def batched(n: int) -> Batched:
    return Batched(packet_id(n), AT + n + 3)


def awaiting_ack(n: int, deadline_at: int = AT + 60_000) -> AwaitingAck:
    return AwaitingAck(packet_id(n), deadline_at, AT + n + 4, AT + n + 4)


def held(n: int, how: Any = "pause", node: str = "shape") -> Held:
    return Held(packet_id(n), how, error(node=node), node, AT + n + 4)


def unheld(n: int) -> Unheld:
    return Unheld(packet_id(n), AT + n + 5)


def escalated(n: int, node: str = "shape", **given: Any) -> Escalated:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "error": error(node=node),
        "reason": "error",
        "node": node,
        "cursor": node,
        "at": AT + n + 4,
    }
    return Escalated(**made | given)


def acked(n: int, by: str = "ada") -> Acked:
    return Acked(packet_id(n), by, AT + n + 4)


def resolved(n: int, action: Any = "retry", **given: Any) -> Resolved:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "action": action,
        "by": "ada",
        "by_kind": "human",
        "reason": "provider back up",
        "at": AT + n + 6,
        "queue_seq": 1000 + n if action == "retry" else None,
    }
    return Resolved(**made | given)


def replayed(n: int, cursor: str = "shape", **given: Any) -> Replayed:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "cursor": cursor,
        "by": "ada",
        "at": AT + n + 6,
        "queue_seq": 1000 + n,
    }
    return Replayed(**made | given)


def rerun(n: int, cursor: str = "shape", **given: Any) -> Rerun:
    made: dict[str, Any] = {
        "unit": packet_id(n),
        "cursor": cursor,
        "data": DATA,
        "by": "ada",
        "at": AT + n + 6,
        "queue_seq": 1000 + n,
    }
    return Rerun(**made | given)


def purged(n: int) -> Purged:
    return Purged(packet_id(n), "ada", AT + n + 7)


def expired(n: int) -> Expired:
    return Expired(packet_id(n), AT + 1_000)


def cleared(n: int) -> Cleared:
    return Cleared(packet_id(n), AT + 1_000)


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
    "Looped": looped,
    "FannedOut": fanned_out,
    "Batched": batched,
    "AwaitingAck": awaiting_ack,
    "Held": held,
    "Unheld": unheld,
    "Escalated": escalated,
    "Acked": acked,
    "Resolved": resolved,
    "Replayed": replayed,
    "Rerun": rerun,
    "Purged": purged,
    "Expired": expired,
    "Cleared": cleared,
}

# How a unit comes into each state; None is no unit at all.
WAYS: Mapping[str | None, Callable[[int], list[Change]]] = {
    None: lambda n: [],
    "accepted": lambda n: [accepted(n)],
    "processing": lambda n: [accepted(n), stepped(n, cursor="next")],
    "writing": lambda n: [accepted(n), stepped(n)],
    "verifying": lambda n: [accepted(n), written(n)],
    "branched": lambda n: [accepted(n), fanned_out(n)],
    "escalated": lambda n: [accepted(n), escalated(n)],
    "delivered": lambda n: [accepted(n), written(n), delivered(n)],
    "filtered": lambda n: [accepted(n), filtered(n)],
    "dead_lettered": lambda n: [accepted(n), dead_lettered(n)],
    "rejected": lambda n: [rejected(n)],
}
