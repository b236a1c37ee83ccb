"""What the journal tells: listings, events and counts, for every process.

Each function takes `Rows`, so it reads alike in the pipeline process (apsw) and in the
gateway or the command line (read-only, `readonly.py`). The records carry the field
names of proto/pipo/v1; turning them into messages is not done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from pipo.errors import BadRequest
from pipo.journal import patches
from pipo.journal.changes import ESCALATED, PENDING, STATES
from pipo.journal.recover import IS_PENDING
from pipo.journal.rows import Rows
from pipo.journal.traces import (
    Copy,
    Event,
    Packet,
    PacketError,
    Retry,
    Step,
    Trace,
    error_of,
    node_shown,
    trace,
)

__all__ = [
    "Copy",
    "Event",
    "EventPage",
    "NodeLatency",
    "OldestPending",
    "Packet",
    "PacketError",
    "PacketPage",
    "PacketRow",
    "Retry",
    "Rows",
    "Source",
    "Step",
    "Trace",
    "accepted_since",
    "counters",
    "data_of",
    "events",
    "input_state",
    "last_delivery_at",
    "latency",
    "oldest_pending",
    "packets",
    "standing_of",
    "trace",
    "ulid_time",
]

PAGE_MAX: Final = 1000
SAMPLES: Final = 100
# Crockford's alphabet, in which a ULID's first ten letters are its milliseconds.
_ULID: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Source(Protocol):
    """Who owns a running journal, as far as a reader of it needs to know."""

    @property
    def rows(self) -> Rows: ...

    @property
    def last_seq(self) -> int: ...

    async def wait_beyond(self, seq: int, timeout_s: float) -> int: ...


@dataclass(frozen=True, slots=True)
class PacketRow:
    packet_id: str
    state: str
    node: str | None
    version: int
    attempt: int
    received_at: int
    updated_at: int
    error: PacketError | None


@dataclass(frozen=True, slots=True)
class PacketPage:
    """Newest first; `total` counts every packet of that state, `next` is None on the last page."""

    packets: list[PacketRow]
    total: int
    next: str | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Oldest first; `last_seq` is where the next page starts."""

    events: list[Event]
    last_seq: int
    more: bool


@dataclass(frozen=True, slots=True)
class OldestPending:
    packet_id: str
    received_at: int


@dataclass(frozen=True, slots=True)
class NodeLatency:
    node: str
    count: int
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None


# ── packets ──────────────────────────────────────────────────────────────────

_ROW: Final = "id, state, cursor, version, attempt, received_at, updated_at, error"

# Roots of any state, newest first; ids are ULIDs, so their order is the order of arrival.
ALL_PACKETS: Final = f"""
SELECT {_ROW} FROM units WHERE root IS NULL AND id < ? ORDER BY id DESC LIMIT ?
"""
# Roots of one settled state.
SETTLED_PACKETS: Final = f"""
SELECT {_ROW} FROM units INDEXED BY units_listed
WHERE settled_at IS NOT NULL AND root IS NULL AND state = ? AND id < ?
ORDER BY id DESC LIMIT ?
"""
# Roots of one pending state: as many as the buffer holds, at most.
PENDING_PACKETS: Final = f"""
SELECT {_ROW} FROM units INDEXED BY units_pending
WHERE {IS_PENDING} AND root IS NULL AND state = ? AND id < ?
ORDER BY id DESC LIMIT ?
"""
# Escalated units, copies too (edge 118).
ESCALATED_UNITS: Final = f"""
SELECT {_ROW} FROM units INDEXED BY units_pending
WHERE {IS_PENDING} AND state = ? AND id < ?
ORDER BY id DESC LIMIT ?
"""
COUNT_ESCALATED: Final = f"""
SELECT count(*) FROM units INDEXED BY units_pending WHERE {IS_PENDING} AND state = 'escalated'
"""
# Behind every id there is.
_END: Final = "~"


async def packets(
    rows: Rows, state: str | None = None, limit: int = 50, after: str | None = None
) -> PacketPage:
    """One page of packets, newest first, those after `after` (an older id).

    Raises: BadRequest, for an unknown state or a limit outside 1 to 1000.
    """
    _check_limit(limit)
    if state is not None and state not in STATES:
        raise BadRequest(f"no state {state!r}", hint="one of " + ", ".join(STATES))
    params: tuple[Any, ...] = (after or _END, limit + 1)
    if state is None:
        query = ALL_PACKETS
    else:
        params = (state, *params)
        query = PENDING_PACKETS if state in PENDING else SETTLED_PACKETS
        query = ESCALATED_UNITS if state == ESCALATED else query
    total_query = COUNT_ESCALATED if state == ESCALATED else COUNTERS
    found, counts = await rows.together((query, params), (total_query, ()))
    made = [_packet_row(*row) for row in found[:limit]]
    return PacketPage(
        packets=made,
        total=counts[0][0] if state == ESCALATED else _total(dict(counts), state),
        next=made[-1].packet_id if len(found) > limit else None,
    )


def _total(counts: Mapping[str, int], state: str | None) -> int:
    wanted = STATES if state is None else (state,)
    return sum(counts.get(f"now.{one}", 0) for one in wanted)


def _packet_row(
    id: str,
    state: str,
    cursor: str | None,
    version: int,
    attempt: int,
    received_at: int,
    updated_at: int,
    error: str | None,
) -> PacketRow:
    made = error_of(error)
    return PacketRow(
        packet_id=id,
        state=state,
        node=node_shown(state, cursor, made),
        version=version,
        attempt=attempt,
        received_at=received_at,
        updated_at=updated_at,
        error=made,
    )


async def standing_of(rows: Rows, packet_id: str) -> tuple[str, str] | None:
    """A unit's state and its error's message, if it has one; None for an unknown unit."""
    found = await rows.rows(
        "SELECT state, coalesce(error ->> '$.message', '') FROM units WHERE id = ?", (packet_id,)
    )
    return (str(found[0][0]), str(found[0][1])) if found else None


# Packets that these hand-overs (a JSON list of [sender, key]) made, and their states. A purge
# leaves the key: it makes no second packet.
HANDED_OVER: Final = """
SELECT i.sender, i.key, i.packet, coalesce(u.state, 'gone')
FROM json_each(?) AS wanted
JOIN inbox AS i ON i.sender = wanted.value ->> 0 AND i.key = wanted.value ->> 1
LEFT JOIN units AS u ON u.id = i.packet
"""


async def handed_over(
    rows: Rows, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """By sender and key: the packet that was made of it, and its state, `gone` once it was purged
    (edge 244)."""
    found = await rows.rows(HANDED_OVER, (msgspec.json.encode(keys).decode(),))
    return {(sender, key): (packet, state) for sender, key, packet, state in found}


# A unit's data starts at its newest whole value, `patched` patches back, or at its birth.
UNIT_BIRTH: Final = "SELECT CAST(data AS BLOB) FROM units WHERE id = ?"
UNIT_PATCHES: Final = """
SELECT patch FROM events WHERE unit = ? AND patch IS NOT NULL
ORDER BY seq DESC LIMIT coalesce((SELECT patched + 1 FROM units WHERE id = ?), 0)
"""


async def data_of(rows: Rows, unit: str) -> bytes | None:
    """A unit's data as it stands now; None where retention cleared it or no such unit is."""
    births, steps = await rows.together((UNIT_BIRTH, (unit,)), (UNIT_PATCHES, (unit, unit)))
    if not births or (births[0][0] is None and not steps):
        return None
    # Beside a rerun retention may have cleared what came before: the rerun's value is whole.
    return patches.fold(births[0][0] or b"null", [row[0] for row in reversed(steps)])


# ── events ───────────────────────────────────────────────────────────────────

EVENTS: Final = """
SELECT seq, at, unit, type, node, CAST(detail AS BLOB),
    (SELECT value FROM meta WHERE key = 'pipeline')
FROM events WHERE seq > ? ORDER BY seq LIMIT ?
"""


async def events(rows: Rows, after_seq: int = 0, limit: int = 100) -> EventPage:
    """One page of events, oldest first; an empty page echoes `after_seq` (edge 77).

    Raises: BadRequest, for a limit outside 1 to 1000 or a negative number.
    """
    _check_limit(limit)
    if after_seq < 0:
        raise BadRequest(f"after_seq is {after_seq}", hint="a whole number, 0 or more")
    found = await rows.rows(EVENTS, (after_seq, limit + 1))
    made = [
        Event(seq, at, pipeline, unit or "", type_, node, detail)
        for seq, at, unit, type_, node, detail, pipeline in found[:limit]
    ]
    return EventPage(made, made[-1].seq if made else after_seq, len(found) > limit)


# ── counts and times ─────────────────────────────────────────────────────────

COUNTERS: Final = "SELECT name, value FROM counters"
OLDEST_PENDING: Final = f"""
SELECT id, received_at FROM units INDEXED BY units_pending
WHERE {IS_PENDING} AND root IS NULL ORDER BY received_at LIMIT 1
"""
LAST_DELIVERY: Final = """
SELECT settled_at FROM units INDEXED BY units_settled
WHERE settled_at IS NOT NULL AND state = 'delivered' AND root IS NULL
ORDER BY settled_at DESC LIMIT 1
"""
ACCEPTED_SINCE: Final = """
SELECT received_at / 1000, count(*) FROM units
WHERE id >= ? AND root IS NULL AND state <> 'rejected' GROUP BY 1
"""
LATENCY: Final = """
SELECT ms FROM events INDEXED BY events_node
WHERE node = ? AND ms IS NOT NULL ORDER BY seq DESC LIMIT ?
"""


async def counters(rows: Rows) -> dict[str, int]:
    """Every counter: now.<state>, all.<state>, total.<event>, total.check.<check>.<verdict>."""
    return dict(await rows.rows(COUNTERS))


async def oldest_pending(rows: Rows) -> OldestPending | None:
    """The pending packet that was received first."""
    found = await rows.rows(OLDEST_PENDING)
    return OldestPending(*found[0]) if found else None


async def last_delivery_at(rows: Rows) -> int | None:
    """When a packet was delivered last."""
    found = await rows.rows(LAST_DELIVERY)
    return int(found[0][0]) if found else None


async def accepted_since(rows: Rows, since_ms: int) -> dict[int, int]:
    """How many packets were accepted from then on, by the second of the epoch."""
    return dict(await rows.rows(ACCEPTED_SINCE, (ulid_time(max(0, since_ms)),)))


async def latency(rows: Rows, nodes: Sequence[str]) -> list[NodeLatency]:
    """The newest 100 completed steps of each node; `output` is the write (edge 373)."""
    names = ["output" if node == "$output" else node for node in nodes]
    found = await rows.together(*((LATENCY, (name, SAMPLES)) for name in names))
    return [
        _latency(name, sorted(row[0] for row in samples))
        for name, samples in zip(names, found, strict=True)
    ]


def _latency(node: str, ordered: Sequence[float]) -> NodeLatency:
    if not ordered:
        return NodeLatency(node, 0, None, None, None)

    def rank(percent: int) -> float:
        return float(round(ordered[-(-len(ordered) * percent // 100) - 1]))

    return NodeLatency(node, len(ordered), rank(50), rank(95), float(round(ordered[-1])))


# ── inputs ───────────────────────────────────────────────────────────────────


async def input_state(rows: Rows, input_name: str) -> dict[str, str]:
    """What an input remembers."""
    return dict(
        await rows.rows("SELECT key, value FROM input_state WHERE input = ?", (input_name,))
    )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise BadRequest(f"limit is {limit}", hint=f"1 to {PAGE_MAX}")


def ulid_time(at_ms: int) -> str:
    """The smallest ULID of a time."""
    letters = ""
    for _ in range(10):
        at_ms, digit = divmod(at_ms, 32)
        letters = _ULID[digit] + letters
    return letters
