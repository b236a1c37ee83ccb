"""What a run finds in its journal when it starts: every pending unit, with its data.

Idea. A unit's row says where it stands; its data is what it was born with and the
patches since. Nothing is decided here: the state and the cursor say what comes next
(a node runs again, a write is repeated under its key, a check is offered again), and
the executor acts on them.

Payloads are loaded in the order of the queue up to DATA_BYTES_LIMIT; a unit that waits for
its copies needs none. Those of later units stay None, to be read with `reads.data_of` when their turn comes, so that a full
buffer of large packets starts in little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from pipo.journal import patches
from pipo.journal.rows import Row, Rows
from pipo.journal.sheet import Copies
from pipo.journal.statements import COPIES
from pipo.payload import BadPayload

DATA_BYTES_LIMIT: Final = 64 * 1024 * 1024

# As the partial index units_pending says it, or SQLite cannot use the index.
IS_PENDING: Final = (
    "state IN ('accepted', 'processing', 'writing', 'verifying', 'branched', 'escalated')"
)


@dataclass(frozen=True, slots=True)
class PendingUnit:
    """A unit that is not settled, as its last commit left it.

    `data` is the data before the step at `cursor`, None where it is left in the journal.
    `attempt` and `retry_at` are those of the step at the cursor (decision 19). A `branched`
    unit has an empty cursor: its open copies stand in the same list, with it as their `parent`,
    and `copies` says how all of them stand.
    A `held` one waits for the end of the pause, and runs if there is none. `deadline_at` is
    that of its ack, which stands for its write when `acked_write_no` is `write_no`, or one
    more before the write. `taken_up` says that its packet had ended once, or waited for someone:
    a write of it may be older than any mark.
    """

    id: str
    root: str | None
    parent: str | None
    branch: str
    state: str
    cursor: str
    queue_seq: int
    version: int
    input: str
    trigger: str
    source: str
    key: str | None
    attempt: int
    retry_at: int | None
    iteration: int
    hops: int
    write_no: int
    acked_write_no: int | None
    ack_by: str | None
    deadline_at: int | None
    held: str | None
    group_size: int | None
    received_at: int
    updated_at: int
    upstream: bytes | None
    error: bytes | None
    result: bytes | None
    data: bytes | None
    copies: Copies | None = None
    taken_up: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """Everything a run goes on with. `units` stand in the order of their queue."""

    units: list[PendingUnit]
    next_queue_seq: int
    marks: Mapping[str, int]
    version: int | None
    newest_packet: str | None = None
    pause_reason: str | None = None
    ttl_anchor: int | None = None
    lifetime_over: str | None = None
    """The limit that an earlier run was ending for (`LifetimeEnded.limit`)."""

    @property
    def packets(self) -> int:
        """How many of the units are packets of their own."""
        return sum(unit.root is None for unit in self.units)


_COLUMNS: Final = (
    "id, root, parent, branch, state, coalesce(cursor, ''), coalesce(queue_seq, 0), version, "
    "input, trigger, source, key, attempt, retry_at, iteration, hops, write_no, "
    "acked_write_no, ack_by, deadline_at, held, group_size, received_at, updated_at, "
    "CAST(upstream AS BLOB), CAST(error AS BLOB), CAST(result AS BLOB)"
)

PENDING_UNITS: Final = f"""
SELECT CASE state WHEN 'branched' THEN 0 ELSE octet_length(data) END, {_COLUMNS}
FROM units WHERE {IS_PENDING} ORDER BY queue_seq, id
"""
# How the copies of each split unit stand.
PENDING_COPIES: Final = f"""
SELECT u.id, json(({COPIES})) FROM units AS u WHERE u.{IS_PENDING} AND u.state = 'branched'
"""

# Births and patches of the pending units up to a place in the queue. A unit's data starts
# at its newest whole value, `patched` patches back, or at its birth.
PENDING_BIRTHS: Final = f"""
SELECT id, CAST(data AS BLOB) FROM units
WHERE {IS_PENDING} AND state <> 'branched' AND queue_seq <= ?
"""
PENDING_PATCHES: Final = f"""
SELECT unit, patch FROM (
    SELECT e.unit, e.seq, e.patch, u.patched,
        row_number() OVER (PARTITION BY e.unit ORDER BY e.seq DESC) AS back
    FROM units AS u JOIN events AS e ON e.unit = u.id
    WHERE u.{IS_PENDING} AND u.state <> 'branched' AND u.queue_seq <= ?
        AND u.hops > 0 AND e.patch IS NOT NULL
)
WHERE back <= patched + 1 ORDER BY unit, seq
"""

# Units of packets that were replayed, rerun or resolved. The counters spare a journal without
# any the look.
TAKEN_UP: Final = f"""
SELECT u.id FROM units AS u
WHERE u.{IS_PENDING}
    AND EXISTS (
        SELECT 1 FROM counters WHERE value > 0 AND name IN (
            'total.dlq.replayed', 'total.packet.rerun', 'total.packet.resolved'
        )
    )
    AND EXISTS (
        SELECT 1 FROM events AS e WHERE e.unit IN (u.id, u.root)
            AND e.type IN ('dlq.replayed', 'packet.rerun', 'packet.resolved')
    )
"""

MARKS: Final = "SELECT name, value FROM marks"
NEWEST_VERSION: Final = "SELECT max(version) FROM versions"
# The root that came last: ids are ULIDs.
NEWEST_PACKET: Final = "SELECT max(id) FROM units WHERE root IS NULL"
FACTS: Final = """
SELECT key, value FROM meta WHERE key IN ('pause_reason', 'ttl_anchor', 'lifetime_over')
"""


async def recover(rows: Rows) -> Recovery:
    """The state a run starts from. Raises: Unreadable."""
    found, split, again, marks, version, newest, facts = await rows.together(
        (PENDING_UNITS, ()),
        (PENDING_COPIES, ()),
        (TAKEN_UP, ()),
        (MARKS, ()),
        (NEWEST_VERSION, ()),
        (NEWEST_PACKET, ()),
        (FACTS, ()),
    )
    data = await _data(rows, _resident(found))
    copies = {unit: Copies.of(msgspec.json.decode(counted)) for unit, counted in split}
    taken_up = {row[0] for row in again}
    units = [
        PendingUnit(*(*row[1:], data.get(row[1]), copies.get(row[1]), row[1] in taken_up))
        for row in found
    ]
    kept: dict[str, str] = dict(facts)
    anchor = kept.get("ttl_anchor")
    return Recovery(
        units=units,
        next_queue_seq=max((unit.queue_seq for unit in units), default=0) + 1,
        marks=dict(marks),
        version=version[0][0],
        newest_packet=newest[0][0],
        pause_reason=kept.get("pause_reason"),
        ttl_anchor=int(anchor) if anchor is not None else None,
        lifetime_over=kept.get("lifetime_over"),
    )


async def pause_reason(rows: Rows) -> str | None:
    """Why the last run was paused when it ended; None when it was not. Raises: Unreadable."""
    kept: dict[str, str] = dict(await rows.rows(FACTS))
    return kept.get("pause_reason")


def _resident(found: Iterable[Row]) -> int:
    """The last place in the queue whose payload is loaded; -1 for none."""
    size, last, before = 0, -1, -1
    for row in found:
        size += row[0] or 0
        if row[7] != last:
            before, last = last, row[7]
        if size > DATA_BYTES_LIMIT and before >= 0:
            # All or none of one place: a packet's copies share it.
            return before
    return last


async def _data(rows: Rows, last: int) -> dict[str, bytes]:
    """Data by unit. One that is damaged is left out: who needs it reads it again and is told."""
    births, steps = await rows.together((PENDING_BIRTHS, (last,)), (PENDING_PATCHES, (last,)))
    made: dict[str, list[str]] = {}
    for unit, patch in steps:
        made.setdefault(unit, []).append(patch)
    data: dict[str, bytes] = {}
    for unit, birth in births:
        if birth is not None:
            with suppress(BadPayload):
                data[unit] = patches.fold(birth, made.get(unit, ()))
    return data
