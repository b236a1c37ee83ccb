"""Split packets: how copies are born, and how their ends settle what they came of.

Idea. A unit that splits becomes `branched` and waits; its copies move like packets of
their own. Every end of a copy moves a tally on its parent's row (`sheet.Copies`, which the
writer loads with the row), and the last one settles the parent in the same transaction, up
to the root. What takes a settled copy up again (a replay, a rerun) opens its parents again.

A parent is dead-lettered if any copy is, else delivered if any is, else filtered.
Source: edge 110-126, 263.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pipo import payload
from pipo.errors import Internal
from pipo.journal.sheet import Copies, IllegalChange, Sheet, UnitRow
from pipo.journal.states import (
    BORN,
    BRANCHED,
    DEAD_LETTERED,
    DELIVERED,
    FILTERED,
    LEGAL,
    REOPENS,
    SETTLES,
    PacketError,
    state_at,
)

FANNED_OUT: Final = "packet.fanned_out"
BRANCHED_OFF: Final = "packet.branched"
# The step that split, where the input did.
INPUT: Final = "input"
DEAD_BRANCH: Final = "branch.dead_lettered"

_ALL: Final = {DELIVERED: "all.delivered", FILTERED: "all.filtered"}


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy to be born: its whole branch (`a`, nested `a/c`), its first step, its place."""

    branch: str
    cursor: str
    queue_seq: int


def split(
    sheet: Sheet, unit: str, node: str, copies: Sequence[Copy], data: bytes, at: int
) -> UnitRow:
    """The unit's row, branched, with its copies born.

    Raises: IllegalChange; Internal, for branches that are not its own.
    """
    row = sheet.enter(unit, LEGAL["FannedOut"], "FannedOut", BRANCHED, at)
    row.cursor = None
    row.copies = Copies(open=len(copies))
    _check_branches(row, copies)
    detail = payload.encode({"branches": [copy.branch for copy in copies]}).decode()
    sheet.event(at, FANNED_OUT, unit, node, BRANCHED, detail)
    text = data.decode()
    for copy in copies:
        born = _born(row, copy, text, at)
        sheet.bear(born, BORN, "FannedOut")
        sheet.event(at, BRANCHED_OFF, born.id, node, born.state)
    return row


def _check_branches(row: UnitRow, copies: Sequence[Copy]) -> None:
    for copy in copies:
        parent, _, name = copy.branch.rpartition("/")
        if not name or parent != row.branch:
            raise Internal(f"{copy.branch!r} is no branch of {row.id}", hint="this is a bug")
    if not copies:
        raise Internal(f"{row.id} splits into nothing", hint="this is a bug")


def _born(row: UnitRow, copy: Copy, data: str, at: int) -> UnitRow:
    root = row.root or row.id
    acked = row.acked_write_no == row.write_no + 1
    return UnitRow(
        id=f"{root}:{copy.branch}",
        state=state_at(copy.cursor),
        version=row.version,
        input=row.input,
        trigger=row.trigger,
        source=row.source,
        received_at=row.received_at,
        updated_at=at,
        cursor=copy.cursor,
        queue_seq=copy.queue_seq,
        root=root,
        parent=row.id,
        branch=copy.branch,
        iteration=row.iteration,
        hops=row.hops,
        upstream=row.upstream,
        # An ack that came before the split was for the packet: it is for each of its copies.
        acked_write_no=1 if acked else None,
        ack_by=row.ack_by if acked else None,
        data=data,
    )


def ended(sheet: Sheet, row: UnitRow, at: int) -> None:
    """A unit has settled: a packet is counted, a copy settles its parent if it is the last one."""
    if row.root is None:
        name = _ALL.get(row.state)
        if name is not None:
            sheet.count(name)
        return
    parent = sheet.parent(row)
    assert parent.copies is not None
    parent.copies = parent.copies.ended(row.id, row.state, row.current_error)
    if parent.copies.open == 0:
        _settle(sheet, parent, parent.copies, at)


def _settle(sheet: Sheet, parent: UnitRow, copies: Copies, at: int) -> None:
    state = DEAD_LETTERED if copies.dead else DELIVERED if copies.delivered else FILTERED
    sheet.enter(parent.id, SETTLES, "the end of its last copy", state, at)
    detail = None
    if copies.dead:
        detail = parent.error = dead_branch_error(*copies.dead[0]).json()
    sheet.event(at, f"packet.{state}", parent.id, None, state, detail)
    ended(sheet, parent, at)


def dead_branch_error(copy: str, error: str) -> PacketError:
    """The error of a unit whose copy died; that of a copy further down stands as it is (edge 115)."""
    found = msgspec.json.decode(error)
    if found["code"] == DEAD_BRANCH:
        return PacketError(**found)
    message = dead_branch_text(copy.partition(":")[2], found["message"])
    return PacketError(DEAD_BRANCH, message, None, found["node"], found["attempts"])


def dead_branch_text(branch: str, message: str) -> str:
    """What a unit says that dies of a copy (edge 115)."""
    return f"copy {branch} failed: {message}"


def reopened(
    sheet: Sheet, row: UnitRow, was: str, at: int, event: str, facts: dict[str, object]
) -> None:
    """A unit that had settled as `was` moves again, and so do those that it came of.

    Each of them that had settled is branched again, with an `event` of its own that holds
    `facts` and, for a dead one, the old error.
    """
    if row.root is None:
        name = _ALL.get(was)
        if name is not None:
            sheet.count(name, -1)
        return
    parent = sheet.parent(row)
    assert parent.copies is not None
    parent.copies = parent.copies.reopened(row.id, was)
    if parent.state == BRANCHED:
        return
    parent_was, old = parent.state, parent.current_error
    sheet.enter(parent.id, REOPENS, "a copy that moves again", BRANCHED, at)
    parent.clear_error()
    sheet.event(at, event, parent.id, None, BRANCHED, detail_with_error(facts, old))
    reopened(sheet, parent, parent_was, at, event, facts)


def detail_with_error(facts: dict[str, object], error: str | None) -> str:
    """The detail of an event: facts, and the stored error where there is one."""
    text = payload.encode(facts).decode()
    if error is None:
        return text
    return f'{text[:-1]}{"," if facts else ""}"error":{error}}}'


def refuse_split(sheet: Sheet, unit: str, change: str) -> None:
    """Raises: IllegalChange, for a unit that split: its copies are what moves (edge 263)."""
    row = sheet.find(unit)
    if row is not None and row.copies is not None:
        raise IllegalChange(
            unit, row.state, change, why="split into copies", hint="name its copies"
        )
