"""What becomes of a pending unit when its process starts again.

Idea. A unit resumes at its last committed step (R058). What was found on disk
decides how, and the decision is a table: every finding matches exactly one row,
and the log names the row. Nothing is guessed from time stamps.

    row  written  settled by the write  wait left   decision
    R1   no       -                     no          RUN: ready, in its old place in the queue
    R2   no       -                     yes         WAIT: holds its slot, goes on when its wait is over
    R3   yes      yes                   -           DELIVER: its write was its check (ack, none)
    R4   yes      no                    -           VERIFY: not written again, checked anew

R1 and R2 write with `repeat: recovered`: the write may have happened just before
the crash, and its key is looked for from the last committed mark on. Rejected:
remembering which units were in the middle of a write. That costs a commit for
every write; looking costs only after a crash.

A version that pending units are pinned to and the journal does not hold refuses
the start (`versions.Plans.add_older`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from pipo.journal.recover import PendingUnit
from pipo.payload import BadPayload, decode
from pipo_runner.pipeline.units import UNLOADED, Unit


class Decision(Enum):
    RUN = auto()
    WAIT = auto()
    DELIVER = auto()
    VERIFY = auto()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a pending unit looks like on disk."""

    written: bool
    settled_by_write: bool
    wait_left: bool


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    matches: Callable[[Finding], bool]
    decision: Decision


TABLE: Final = (
    Row("R1", lambda f: not f.written and not f.wait_left, Decision.RUN),
    Row("R2", lambda f: not f.written and f.wait_left, Decision.WAIT),
    Row("R3", lambda f: f.written and f.settled_by_write, Decision.DELIVER),
    Row("R4", lambda f: f.written and not f.settled_by_write, Decision.VERIFY),
)


def decide(finding: Finding) -> Row:
    """The one row that a finding matches."""
    (row,) = (row for row in TABLE if row.matches(finding))
    return row


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
        attempt=row.attempt,
        hops=row.hops,
        iteration=row.iteration,
        repeat="recovered",
        write_no=row.write_no,
        retry_at=row.retry_at,
        key=row.key,
    )


def _data_of(row: PendingUnit) -> Any:
    if row.data is None:
        return UNLOADED
    try:
        return decode(row.data)
    except BadPayload:
        # One damaged packet holds up no other: it fails when its turn comes and it is loaded.
        return UNLOADED
