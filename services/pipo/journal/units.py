"""Single units, as operations on packets look at them before they commit.

A packet's *family* is itself and its copies. Acks, resolutions, replays, purges and reruns
name packets or copies; whether one is possible, and what the refusal says, stands in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pipo.journal.recover import IS_PENDING
from pipo.journal.rows import Rows
from pipo.journal.traces import PacketError, error_of


@dataclass(frozen=True, slots=True)
class UnitStanding:
    """One packet or copy, as it stands on disk."""

    id: str
    root: str | None
    parent: str | None
    branch: str
    state: str
    cursor: str | None
    version: int
    iteration: int
    write_no: int
    acked_write_no: int | None
    ack_by: str | None
    key: str | None
    input: str
    trigger: str
    source: str
    hops: int
    received_at: int
    updated_at: int
    upstream: bytes | None
    error: PacketError | None

    @property
    def packet_id(self) -> str:
        return self.root or self.id


_COLUMNS: Final = (
    "id, root, parent, branch, state, cursor, version, iteration, write_no, acked_write_no, "
    "ack_by, key, input, trigger, source, hops, received_at, updated_at, "
    "CAST(upstream AS BLOB), error"
)

# The families of packets (a JSON list of ids), each with its packet first.
FAMILIES: Final = f"""
SELECT {_COLUMNS} FROM units
WHERE id IN (SELECT value FROM json_each(?1)) OR root IN (SELECT value FROM json_each(?1))
ORDER BY coalesce(root, id), root IS NOT NULL, id
"""
UNITS: Final = f"""
SELECT {_COLUMNS} FROM units WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id
"""
DEAD_LETTERS: Final = """
SELECT id, updated_at FROM units INDEXED BY units_listed
WHERE settled_at IS NOT NULL AND root IS NULL AND state = 'dead_lettered'
ORDER BY id DESC
"""
AWAITING_ACK: Final = f"""
SELECT count(*) FROM units INDEXED BY units_pending
WHERE {IS_PENDING} AND state = 'verifying' AND deadline_at IS NOT NULL
    AND acked_write_no IS NOT write_no
"""
CHECK_OF: Final = (
    "SELECT CAST(compiled AS TEXT) ->> '$.delivered.check' FROM versions WHERE version = ?"
)
RESULT_OF: Final = "SELECT CAST(result AS BLOB) FROM units WHERE id = ?"
# The newest retry of a unit.
LAST_ERROR_OF: Final = """
SELECT detail ->> '$.error' FROM events WHERE unit = ? AND type = 'step.retry'
ORDER BY seq DESC LIMIT 1
"""


async def families(rows: Rows, packet_ids: Sequence[str]) -> dict[str, list[UnitStanding]]:
    """Each packet with its copies, the packet first; an id that is no packet is left out."""
    made: dict[str, list[UnitStanding]] = {}
    for unit in await _units(rows, FAMILIES, packet_ids):
        if unit.root is None:
            made[unit.id] = [unit]
        elif unit.root in made:
            made[unit.root].append(unit)
    return made


async def units(rows: Rows, unit_ids: Sequence[str]) -> dict[str, UnitStanding]:
    """These packets and copies; an unknown id is left out."""
    return {unit.id: unit for unit in await _units(rows, UNITS, unit_ids)}


async def dead_letters(rows: Rows) -> dict[str, int]:
    """Every packet in the dead-letter queue, newest first, and when it died (edge 256)."""
    return dict(await rows.rows(DEAD_LETTERS))


async def awaiting_ack(rows: Rows) -> int:
    """How many units wait for an ack (edge 224)."""
    return int((await rows.rows(AWAITING_ACK))[0][0])


async def check_of(rows: Rows, version: int) -> str | None:
    """The delivery check of a version; None for one that the journal does not hold."""
    found = await rows.rows(CHECK_OF, (version,))
    return found[0][0] if found else None


async def result_of(rows: Rows, unit_id: str) -> bytes | None:
    """What the unit's last write returned; None before it, and for an unknown unit."""
    found = await rows.rows(RESULT_OF, (unit_id,))
    return found[0][0] if found else None


async def last_error_of(rows: Rows, unit_id: str) -> str:
    """What the unit's last failed run that was tried again said, redacted; empty for none."""
    found = await rows.rows(LAST_ERROR_OF, (unit_id,))
    return str(found[0][0]) if found else ""


async def _units(rows: Rows, query: str, ids: Sequence[str]) -> list[UnitStanding]:
    found = await rows.rows(query, (msgspec.json.encode(list(ids)).decode(),))
    return [UnitStanding(*(*row[:-1], error_of(row[-1]))) for row in found]
