"""All SQL that writes a journal: set-wise, with bound values, in fixed chunk sizes.

A set of any size is written by a few statements of 128, 64, … 1 rows, so that the
statement cache holds them all and a transaction of two hundred packets is tens of
statements. Every statement is one call into SQLite: while it runs, the interpreter is
free for the event loop, and it is asked for rarely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from pipo.journal.sheet import FIXED, MUTABLE, UnitRow

CHUNK_ROWS = 128
_SIZES = tuple(CHUNK_ROWS >> shift for shift in range(CHUNK_ROWS.bit_length()))

# ── the transaction's frame ──────────────────────────────────────────────────

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
SAVEPOINT = "SAVEPOINT caller"
RELEASE = "RELEASE caller"
ROLLBACK_TO = "ROLLBACK TO caller"

# The fence and what the transaction's changes need to know: the epoch on disk, and the
# rows of these units (a JSON list of ids) as lists, FIXED columns then MUTABLE ones.
GUARD = f"""
SELECT
    (SELECT value FROM meta WHERE key = 'epoch'),
    (SELECT json_group_array(json_array({", ".join("u." + name for name in FIXED + MUTABLE)}))
        FROM json_each(?) AS wanted JOIN units AS u ON u.id = wanted.value)
"""

# Packets that these hand-overs (a JSON list of [sender, key]) already made.
FIND_KEYS = """
SELECT json_group_array(json_array(i.sender, i.key, i.packet))
FROM json_each(?) AS wanted
JOIN inbox AS i ON i.sender = wanted.value ->> 0 AND i.key = wanted.value ->> 1
"""

# A new writer: everything that an older one still tries to commit is refused from here on.
RAISE_EPOCH = """
UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE key = 'epoch'
RETURNING CAST(value AS INTEGER)
"""

# ── sets ─────────────────────────────────────────────────────────────────────

_BORN = tuple(name for name in UnitRow.__slots__ if name != "was")
_born_values = attrgetter(*_BORN)
_changed_values = attrgetter("id", "was", *MUTABLE, "error", "result")
_CHANGED = ("id", "was", *MUTABLE, "error", "result")


def _values(columns: int, rows: int) -> str:
    return ", ".join(["(" + ", ".join("?" * columns) + ")"] * rows)


@cache
def _insert(table: str, columns: tuple[str, ...], rows: int, conflict: str = "") -> str:
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES {_values(len(columns), rows)} {conflict}"


@cache
def _update_units(rows: int) -> str:
    """From the state found to the state drafted; fewer rows than asked means a broken guard."""
    sets = ", ".join(f"{name} = new.{name}" for name in MUTABLE)
    return f"""
WITH new ({", ".join(_CHANGED)}) AS (VALUES {_values(len(_CHANGED), rows)})
UPDATE units SET {sets},
    error = nullif(coalesce(new.error, units.error), ''),
    result = nullif(coalesce(new.result, units.result), '')
FROM new WHERE units.id = new.id AND units.state = new.was
"""


_EVENT = ("seq", "at", "unit", "type", "node", "state", "detail", "patch", "ms")
_VERSION = (
    "version",
    "source",
    "compiled",
    "files",
    "hash",
    "author",
    "author_kind",
    "reason",
    "created_at",
)

Statement = tuple[str, list[Any], int]


def insert_units(rows: Sequence[UnitRow]) -> Iterator[Statement]:
    """Statements that add these units; each with its values and how many rows it alters."""
    for part in _chunks(rows):
        yield _insert("units", _BORN, len(part)), _flat(map(_born_values, part)), len(part)


def update_units(rows: Sequence[UnitRow]) -> Iterator[Statement]:
    """Statements that bring these found units to their drafted state."""
    for part in _chunks(rows):
        yield _update_units(len(part)), _flat(map(_changed_values, part)), len(part)


def insert_events(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that add these events."""
    for part in _chunks(rows):
        yield _insert("events", _EVENT, len(part)), _flat(part), len(part)


def insert_versions(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that add these versions."""
    for part in _chunks(rows):
        yield _insert("versions", _VERSION, len(part)), _flat(part), len(part)


def insert_inbox(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that note which packet each hand-over made."""
    columns = ("sender", "key", "packet", "input", "at")
    for part in _chunks(rows):
        yield _insert("inbox", columns, len(part)), _flat(part), len(part)


def move_counters(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that add these (name, delta) to the counters."""
    conflict = "ON CONFLICT DO UPDATE SET value = value + excluded.value"
    # A counter that falls exists already; SQLite checks `value >= 0` on the row to insert
    # first, so falling ones are updated where they stand.
    falling = [row for row in rows if row[1] < 0]
    rising = [row for row in rows if row[1] >= 0]
    for part in _chunks(rising):
        yield (
            _insert("counters", ("name", "value"), len(part), conflict),
            _flat(part),
            len(part),
        )
    for part in _chunks(falling):
        yield _add_to_counters(len(part)), _flat(part), len(part)


@cache
def _add_to_counters(rows: int) -> str:
    return f"""
WITH new (name, delta) AS (VALUES {_values(2, rows)})
UPDATE counters SET value = value + new.delta FROM new WHERE counters.name = new.name
"""


def set_facts(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that set these (key, value) of `meta`; a None value forgets the key."""
    for key, value in rows:
        if value is None:
            yield "DELETE FROM meta WHERE key = ?", [key], -1
        else:
            yield (
                _insert(
                    "meta", ("key", "value"), 1, "ON CONFLICT DO UPDATE SET value = excluded.value"
                ),
                [key, value],
                1,
            )


def set_marks(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that set these (name, value) of the output's marks."""
    conflict = "ON CONFLICT DO UPDATE SET value = excluded.value"
    for part in _chunks(rows):
        yield _insert("marks", ("name", "value"), len(part), conflict), _flat(part), len(part)


def set_input_state(rows: Sequence[tuple[Any, ...]]) -> Iterator[Statement]:
    """Statements that set these (input, key, value) of the inputs' memory."""
    conflict = "ON CONFLICT DO UPDATE SET value = excluded.value"
    columns = ("input", "key", "value")
    for part in _chunks(rows):
        yield _insert("input_state", columns, len(part), conflict), _flat(part), len(part)


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start = 0
    left = len(rows)
    for size in _SIZES:
        while left >= size:
            yield rows[start : start + size]
            start += size
            left -= size


def _flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))
