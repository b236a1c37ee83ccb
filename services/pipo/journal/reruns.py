"""What a rerun needs to know of settled packets: which can, and with what data.

A plan is one statement, so that it sees one state of the journal. A unit has *reached* a node
when an event of its own names it; its data there is the fold of the patches before the first
of these events. A split packet is rerun by those of its copies that reached the node; one that
split after reaching it cannot be rerun from there.
Source: edge 274-283, R034.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pipo.journal import patches
from pipo.journal.reads import ulid_time
from pipo.journal.rows import Row, Rows
from pipo.journal.states import LOOP_MAX
from pipo.payload import BadPayload

# As events and requests name the last step.
OUTPUT: Final = "output"


@dataclass(frozen=True, slots=True)
class Reached:
    """A packet or copy that reached the node.

    `size` is that of the data it was born with, None once retention cleared it; `known` says
    whether its version has the node, `split` whether it split there or later.
    """

    id: str
    version: int
    size: int | None
    split: bool
    known: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A packet (or a copy, where it was named: it has a `root`) and its units that got there."""

    id: str
    root: str | None
    state: str
    version: int
    known: bool
    reached: list[Reached]


@dataclass(frozen=True, slots=True)
class Start:
    """What a unit goes back with: its data as JSON, and how often it had been sent back."""

    data: bytes
    iteration: int


# ?1 node, ?2 versions that do not run any more (a JSON list), ?3 whether another version runs
# them anyway.
_KNOWN: Final = f"""
has_node AS MATERIALIZED (
    SELECT v.version FROM versions AS v
    WHERE ?3 OR (
        v.version NOT IN (SELECT value FROM json_each(?2))
        AND (?1 = '{OUTPUT}' OR EXISTS (
            SELECT 1 FROM json_each(CAST(v.compiled AS TEXT), '$.nodes') AS n
            WHERE n.value ->> '$.id' = ?1
        ))
    )
)
"""
_SPLIT: Final = "EXISTS (SELECT 1 FROM units AS c WHERE c.parent = u.id)"
# A copy begins with an event of the step that split into it: it did not reach that one itself.
_REACHED: Final = """
FROM units AS u
WHERE u.id IN (SELECT r.id UNION ALL SELECT c.id FROM units AS c WHERE c.root = r.id)
    AND EXISTS (
        SELECT 1 FROM events AS e
        WHERE e.unit = u.id AND e.node = ?1 AND e.type <> 'packet.branched'
    )
"""
_LOOK: Final = f"""
SELECT r.id, r.root, r.state, r.version, r.version IN has_node, (
    SELECT json_group_array(json_array(
        u.id, u.version, octet_length(u.data), {_SPLIT}, u.version IN has_node
    ) ORDER BY u.id)
    {_REACHED}
)
FROM units AS r
"""
_FITS: Final = f"""
r.version IN has_node AND (
    SELECT count(*) > 0 AND NOT max(
        u.data IS NULL OR {_SPLIT} OR u.version NOT IN has_node
    )
    {_REACHED}
)
"""
# The order of the key is that of arrival, backwards: no index by state has it.
_SETTLED: Final = """
r.root IS NULL AND +r.state IN ('delivered', 'filtered') AND r.received_at >= ?5
"""
# Those that ended well and came since ?5 (whose first possible id is ?4), newest first, as far
# back as the ?6-th that can be rerun.
SETTLED: Final = f"""
WITH {_KNOWN}
{_LOOK}
WHERE {_SETTLED} AND r.id >= CASE WHEN ?6 IS NULL THEN ?4 ELSE coalesce((
    SELECT r.id FROM units AS r WHERE {_SETTLED} AND r.id >= ?4 AND {_FITS}
    ORDER BY r.id DESC LIMIT 1 OFFSET ?6 - 1
), ?4) END
ORDER BY r.id DESC
"""
# These (?4, a JSON list of ids), whatever their state.
NAMED: Final = f"""
WITH {_KNOWN}
{_LOOK}
WHERE r.id IN (SELECT value FROM json_each(?4))
"""

BIRTHS: Final = """
SELECT id, CAST(data AS BLOB) FROM units WHERE id IN (SELECT value FROM json_each(?))
"""
# What happened to these units before they reached the node; to the others, everything.
BEFORE: Final = """
SELECT e.unit, e.type, e.node, e.patch, CASE
    WHEN e.type IN ('dlq.replayed', 'packet.resolved') THEN e.detail ->> '$.error.code' END
FROM json_each(?1) AS wanted JOIN events AS e ON e.unit = wanted.value
WHERE e.seq < coalesce((
    SELECT min(f.seq) FROM events AS f
    WHERE f.unit = e.unit AND f.node = ?2 AND f.type <> 'packet.branched'
), 9223372036854775807)
ORDER BY e.unit, e.seq
"""


async def settled(
    rows: Rows,
    node: str,
    *,
    since_ms: int = 0,
    last: int | None = None,
    current: bool,
    broken: Iterable[int] = (),
) -> list[Candidate]:
    """The packets that ended well, newest first, received at `since_ms` or later; with `last`
    no further back than so many that can be rerun.

    `current` looks at no version of theirs, `broken` ones count as without the node.
    """
    known = (node, _json(sorted(broken)), current)
    first = ulid_time(max(0, since_ms))
    return [_candidate(row) for row in await rows.rows(SETTLED, (*known, first, since_ms, last))]


async def named(
    rows: Rows, node: str, ids: Sequence[str], *, current: bool, broken: Iterable[int] = ()
) -> dict[str, Candidate]:
    """These packets and copies; an unknown id is left out."""
    known = (node, _json(sorted(broken)), current)
    found = [_candidate(row) for row in await rows.rows(NAMED, (*known, _json(list(ids))))]
    return {one.id: one for one in found}


async def starts(rows: Rows, node: str, unit_ids: Sequence[str]) -> dict[str, Start]:
    """What these units had when they first reached the node; one whose data is damaged or gone
    is left out."""
    wanted = {id_: _above(id_) for id_ in unit_ids}
    stories = sorted({*wanted, *(one for above in wanted.values() for one in above)})
    births, events = await rows.together(
        (BIRTHS, (_json(list(unit_ids)),)), (BEFORE, (_json(stories), node))
    )
    of: dict[str, list[Row]] = {}
    for event in events:
        of.setdefault(event[0], []).append(event)
    made: dict[str, Start] = {}
    for id_, birth in births:
        if birth is None:
            continue
        passes = 0
        for one in (*wanted[id_], id_):
            passes = _passes(of.get(one, ()), passes)
        try:
            data = patches.fold(birth, [row[3] for row in of.get(id_, ()) if row[3] is not None])
        except BadPayload:
            continue
        made[id_] = Start(data, passes)
    return made


def _passes(story: Iterable[Row], passes: int) -> int:
    """How often a unit had been sent back at the end of a story, as its row counts it."""
    at: dict[str, int] = {}
    for _, type_, node, _, code in story:
        if type_ == "packet.rerun":
            passes = at.get(node, passes)
        elif node is not None:
            at.setdefault(node, passes)
        if type_ == "node.looped":
            passes += 1
        elif code == LOOP_MAX:
            passes = 0
    return passes


def _above(unit_id: str) -> list[str]:
    """The units that a copy came of, the packet first."""
    packet_id, _, branch = unit_id.partition(":")
    if not branch:
        return []
    parts = branch.split("/")
    return [packet_id, *(f"{packet_id}:{'/'.join(parts[:n])}" for n in range(1, len(parts)))]


def _candidate(row: Row) -> Candidate:
    id_, root, state, version, known, reached = row
    found = [
        Reached(unit, pinned, size, bool(split), bool(has))
        for unit, pinned, size, split, has in msgspec.json.decode(reached)
    ]
    return Candidate(id_, root, state, version, bool(known), found)


def _json(value: Sequence[object]) -> str:
    return msgspec.json.encode(value).decode()
