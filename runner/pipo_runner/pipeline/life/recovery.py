"""What becomes of a pending unit when its process starts again.

Idea. A unit resumes at its last committed step (R058). What was found on disk
decides how, and the decision is a table: every finding matches exactly one row,
and the log names the row. Nothing is guessed from time stamps.

    row  waits for  written  settled by the write  wait left   decision
    R1   nobody     no       -                     no          RUN: ready, in its old place in the queue
    R2   nobody     no       -                     yes         WAIT: holds its slot, goes on when its wait is over
    R3   nobody     yes      yes                   -           DELIVER: its write was its check (ack, none)
    R4   nobody     yes      no                    -           VERIFY: not written again, checked anew
    R5   a resume   -        -                     -           HOLD: its step begins anew after the resume
    R6   someone    -        -                     -           LEAVE: escalated, until it is resolved
    R7   its ack    yes      no                    -           PARK: until its deadline, which stands
    R8   nobody     yes      no                    -           CONFIRM: acked, or its window was closed by a hold
    R9   its copies -        -                     -           SPLIT: the end of its last copy is its own

A held unit waits for a resume only where the pause goes on: after a clean stop or a halt it
is one of R1, R4 or R8. In a run that begins paused R1 and R2 are taken up and wait for the gate,
and R3, R4 and R8 are put off until the resume: nothing moves before (edge 303).

R1 and R2 write with `repeat: recovered`: the write may have happened just before
the crash, and its key is looked for from the last committed mark on; with `repeat:
repeated` for a packet that was taken up again, whose write may be older. Rejected:
remembering which units were in the middle of a write. That costs a commit for
every write; looking costs only after a crash.

A version that pending units are pinned to and the journal does not hold refuses
the start (`versions.Plans.add_older`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pipo.journal.recover import PendingUnit
from pipo.payload import BadPayload, decode, decode_own
from pipo_runner.pipeline.flow.units import BATCH, UNLOADED, Unit


class Decision(Enum):
    """What becomes of a unit, in the words of the log."""

    RUN = "go on"
    WAIT = "wait for their retry"
    DELIVER = "are delivered by their write"
    VERIFY = "are checked again"
    PARK = "wait for an ack"
    CONFIRM = "open their ack again"
    HOLD = "wait for the resume"
    LEAVE = "are escalated"
    SPLIT = "wait for their copies"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a pending unit looks like on disk."""

    written: bool
    settled_by_write: bool
    wait_left: bool
    held: bool
    """A policy holds it, and the pause goes on."""
    escalated: bool
    parks: bool
    """Its check is an ack from outside."""
    window: bool
    """Its ack may still come: the window is on disk, and it is not acked."""
    split: bool
    """It has split, and all its copies exist: both are one commit (edge 125)."""


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    matches: Callable[[Finding], bool]
    decision: Decision


TABLE: Final = (
    Row("R1", lambda f: _free(f) and not f.written and not f.wait_left, Decision.RUN),
    Row("R2", lambda f: _free(f) and not f.written and f.wait_left, Decision.WAIT),
    Row("R3", lambda f: _free(f) and f.written and f.settled_by_write, Decision.DELIVER),
    Row("R4", lambda f: _unseen(f) and not f.parks, Decision.VERIFY),
    Row("R5", lambda f: f.held and not (f.escalated or f.split), Decision.HOLD),
    Row("R6", lambda f: f.escalated and not f.split, Decision.LEAVE),
    Row("R7", lambda f: _unseen(f) and f.parks and f.window, Decision.PARK),
    Row("R8", lambda f: _unseen(f) and f.parks and not f.window, Decision.CONFIRM),
    Row("R9", lambda f: f.split, Decision.SPLIT),
)


def _free(found: Finding) -> bool:
    """It waits for nobody."""
    return not (found.held or found.escalated or found.split)


def _unseen(found: Finding) -> bool:
    """It is written, and that alone does not settle it."""
    return _free(found) and found.written and not found.settled_by_write


def decide(finding: Finding) -> Row:
    """The one row that a finding matches."""
    (row,) = (row for row in TABLE if row.matches(finding))
    return row


def told(taken: Mapping[str, int]) -> str | None:
    """`1 go on (R1), 3 wait for an ack (R7)`: how many units each row took, for the log; None for none."""
    shown = (
        f"{taken[row.label]} {row.decision.value} ({row.label})"
        for row in TABLE
        if taken.get(row.label)
    )
    return ", ".join(shown) or None


def unit_of(row: PendingUnit) -> Unit:
    """The unit in memory; a payload that is damaged or was not handed over stays in the journal."""
    return Unit(
        id=row.id,
        version=row.version,
        input=row.input,
        trigger=row.trigger,
        source=row.source,
        received_at=row.received_at,
        queue_seq=row.queue_seq,
        cursor=row.cursor,
        data=_data_of(row),
        size=len(row.data or b""),
        # A batch is formed anew, with all its retries (edge 161).
        attempt=0 if row.cursor == BATCH else row.attempt,
        hops=row.hops,
        iteration=row.iteration,
        repeat="repeated" if row.taken_up else "recovered",
        write_no=row.write_no,
        branch=row.branch,
        retry_at=row.retry_at,
        key=row.key,
        acked_write_no=row.acked_write_no,
        ack_by=row.ack_by,
        deadline_at=row.deadline_at,
        upstream=None if row.upstream is None else decode_own(row.upstream),
    )


def _data_of(row: PendingUnit) -> Any:
    if row.data is None:
        return UNLOADED
    try:
        return decode(row.data)
    except BadPayload:
        # One damaged packet holds up no other: it fails when its turn comes and it is loaded.
        return UNLOADED
