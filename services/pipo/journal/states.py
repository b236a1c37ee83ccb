"""The states of a unit, and which change leads from where to where.

`LEGAL` is the machine as a table; `changes.py` tells what each change does besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pipo import payload
from pipo.journal.sheet import Legal

ACCEPTED: Final = "accepted"
PROCESSING: Final = "processing"
WRITING: Final = "writing"
VERIFYING: Final = "verifying"
BRANCHED: Final = "branched"
ESCALATED: Final = "escalated"
DELIVERED: Final = "delivered"
FILTERED: Final = "filtered"
DEAD_LETTERED: Final = "dead_lettered"
REJECTED: Final = "rejected"

# Accepted and not settled: what counts as pending, in the order of a unit's life.
PENDING: Final = (ACCEPTED, PROCESSING, WRITING, VERIFYING, BRANCHED, ESCALATED)
SETTLED: Final = (DELIVERED, FILTERED, DEAD_LETTERED, REJECTED)
STATES: Final = PENDING + SETTLED

# Cursors that are no node.
OUTPUT: Final = "$output"
BATCH: Final = "$batch"
VERIFY: Final = "$verify"

# What becomes of an escalated unit.
RETRY: Final = "retry"
DEAD_LETTER: Final = "dead_letter"
DROP: Final = "drop"

PURGED_EVENT: Final = "dlq.purged"
# The events that Pipo journals of a unit; every other one is a `tap: log` or a `tap: emit`,
# whose detail is payload. Source: reference/doors.md.
OWN_EVENTS: Final = frozenset(
    {
        "agent.usage",
        "budget.warning",
        "delivery.awaiting_ack",
        "delivery.unverified",
        "dlq.replayed",
        PURGED_EVENT,
        "node.done",
        "node.failed",
        "node.failed_continued",
        "node.looped",
        "output.batched",
        "output.written",
        "packet.accepted",
        "packet.acked",
        "packet.branched",
        "packet.dead_lettered",
        "packet.delivered",
        "packet.dropped",
        "packet.escalated",
        "packet.fanned_out",
        "packet.filtered",
        "packet.held",
        "packet.rejected",
        "packet.rerun",
        "packet.resolved",
        "step.retry",
    }
)

# What a packet's error is called (facts §6). The hand-off's two words stand in the message of
# an `output.failed`; `budget.packet` comes with agent nodes.
Code = Literal[
    "input.schema",
    "input.invalid",
    "node.failed",
    "loop.max",
    "output.invalid",
    "output.failed",
    "delivery.unverified",
    "budget.packet",
    "branch.dead_lettered",
    "stall",
]
CODES: Final[tuple[Code, ...]] = get_args(Code)

# The code of an error at a loop's limit: what takes such a unit up again counts its passes anew.
LOOP_MAX: Final = "loop.max"


def _stay(*states: str) -> Legal:
    return {state: (state,) for state in states}


def _lead(to: tuple[str, ...], *states: str) -> Legal:
    return dict.fromkeys(states, to)


# Change -> {state found: states it may lead to}; None is a unit that does not exist yet.
LEGAL: Final[Mapping[str, Legal]] = {
    "Accepted": {None: (ACCEPTED,)},
    "Rejected": {None: (REJECTED,)},
    # To `writing` when the next step is the output, else to `processing`.
    "Stepped": _lead((PROCESSING, WRITING), ACCEPTED, PROCESSING),
    "Looped": _lead((PROCESSING,), ACCEPTED, PROCESSING),
    "FannedOut": _lead((BRANCHED,), ACCEPTED, PROCESSING),
    "Retried": _stay(ACCEPTED, PROCESSING, WRITING, VERIFYING),
    "Batched": _lead((WRITING,), ACCEPTED, PROCESSING, WRITING),
    "Writing": _lead((WRITING,), ACCEPTED, PROCESSING, WRITING),
    # From `accepted` and `processing` too: a write under the default key needs no mark before it.
    "Written": _lead((VERIFYING,), ACCEPTED, PROCESSING, WRITING),
    "AwaitingAck": _stay(VERIFYING),
    "Delivered": {VERIFYING: (DELIVERED,)},
    "Unverified": _stay(VERIFYING),
    "Filtered": _lead((FILTERED,), ACCEPTED, PROCESSING),
    "Dropped": _lead((FILTERED,), ACCEPTED, PROCESSING),
    "DeadLettered": _lead((DEAD_LETTERED,), ACCEPTED, PROCESSING, WRITING, VERIFYING),
    "Held": _stay(ACCEPTED, PROCESSING, WRITING, VERIFYING),
    "Unheld": _stay(ACCEPTED, PROCESSING, WRITING, VERIFYING),
    "Escalated": _lead((ESCALATED,), ACCEPTED, PROCESSING, WRITING, VERIFYING),
    # What `delivered` was acked for answers too, and changes nothing.
    "Acked": _stay(ACCEPTED, PROCESSING, WRITING, VERIFYING, ESCALATED),
    # By its action: retry to where its cursor is, dead_letter, drop.
    "Resolved": {ESCALATED: (PROCESSING, WRITING, DEAD_LETTERED, FILTERED)},
    "Replayed": {DEAD_LETTERED: (PROCESSING, WRITING)},
    "Rerun": _lead((PROCESSING, WRITING), DELIVERED, FILTERED),
    # To nothing: the row goes.
    "Purged": {DEAD_LETTERED: ()},
    "Expired": _lead((), DELIVERED, FILTERED, DEAD_LETTERED, REJECTED),
    "Cleared": _stay(DELIVERED, FILTERED, REJECTED),
}

# What happens to a split packet by what happens to its copies (families.py).
BORN: Final[Legal] = {None: (PROCESSING, WRITING)}
SETTLES: Final[Legal] = {BRANCHED: (DELIVERED, FILTERED, DEAD_LETTERED)}
REOPENS: Final[Legal] = _lead((BRANCHED,), DELIVERED, FILTERED, DEAD_LETTERED)


@dataclass(frozen=True, slots=True)
class PacketError:
    """Why a unit stopped: set by the change that stops it, cleared when it moves again.

    `node` is a node id, `output`, `delivered`, or the input's name for a rejection;
    `attempts` is how often the step ran.
    """

    code: Code
    message: str
    rule: str | None
    node: str
    attempts: int

    def json(self) -> str:
        return payload.encode(
            {
                "code": self.code,
                "message": self.message,
                "rule": self.rule,
                "node": self.node,
                "attempts": self.attempts,
            }
        ).decode()


def state_at(cursor: str) -> str:
    """The state of a unit that stands before this step."""
    return WRITING if cursor in (OUTPUT, BATCH) else PROCESSING


def plain(node: str) -> str:
    """A step's name in events and errors: `output` and `delivered` for the cursors."""
    if node in (OUTPUT, BATCH):
        return "output"
    return "delivered" if node == VERIFY else node
