"""All SQL that writes a journal. A whole transaction is one statement.

`journal_transaction` is a temporary view of the writing connection, and its trigger is
the transaction's program: one INSERT into it hands every set over as a JSON text, and
SQLite writes them all, commits and syncs in one call. The interpreter is needed before
that call and after it, not in between (writer.py says why that matters). Values arrive
exactly: text as JSON strings, integers of 64 bits, null as NULL. Texts beyond
HEAVY_CHARS (sheet.py) do not travel in a document; they follow as bound values in the same
transaction.
"""

from __future__ import annotations

from typing import Final

from pipo.journal.sheet import FIXED, MUTABLE, PLAIN_COLUMNS, RARE, UNIT_COLUMNS
from pipo.journal.states import OWN_EVENTS, PURGED_EVENT

# What the program says when it refuses, beside SQLite's own constraints.
FENCED: Final = "fenced"
STATE_MOVED: Final = "a unit is not in the state that was drafted from"

BEGIN: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
SAVEPOINT: Final = "SAVEPOINT caller"
RELEASE: Final = "RELEASE caller"
ROLLBACK_TO: Final = "ROLLBACK TO caller"

# A new writer: everything that an older one still tries to commit is refused from here on.
RAISE_EPOCH: Final = """
UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE key = 'epoch'
RETURNING CAST(value AS INTEGER)
"""

# How the copies of a unit stand, as sheet.Copies has it; null for a unit without copies.
COPIES: Final = """
SELECT CASE WHEN count(*) > 0 THEN json_array(
    count(*) FILTER (WHERE c.settled_at IS NULL),
    count(*) FILTER (WHERE c.state = 'delivered'),
    count(*) FILTER (WHERE c.state = 'filtered'),
    json_group_array(json_array(c.id, c.error) ORDER BY c.settled_at, c.id)
        FILTER (WHERE c.state = 'dead_lettered')
) END
FROM units AS c WHERE c.parent = u.id
"""

EPOCH: Final = "SELECT value FROM meta WHERE key = 'epoch'"

# The rows of these units (a JSON list of ids), each a list: FIXED columns, MUTABLE ones, the
# error, the copies.
FIND_UNITS: Final = f"""
SELECT json_group_array(json_array(
    {", ".join("u." + name for name in FIXED + MUTABLE)}, u.error, json(({COPIES}))
))
FROM json_each(?) AS wanted JOIN units AS u ON u.id = wanted.value
"""

# Packets that these hand-overs (a JSON list of [sender, key]) already made.
FIND_KEYS: Final = """
SELECT json_group_array(json_array(i.sender, i.key, i.packet))
FROM json_each(?) AS wanted
JOIN inbox AS i ON i.sender = wanted.value ->> 0 AND i.key = wanted.value ->> 1
"""

# ── the program ──────────────────────────────────────────────────────────────

CHANGED_COLUMNS: Final = ("id", "was", *MUTABLE, "error", "result")
USUAL_COLUMNS: Final = tuple(name for name in CHANGED_COLUMNS if name not in RARE)
EVENT_COLUMNS: Final = ("seq", "at", "unit", "type", "node", "state", "detail", "patch", "ms")
VERSION_COLUMNS: Final = (
    "version",
    "source",
    "compiled",
    "files",
    "hash",
    "author",
    "author_kind",
    "reason",
    "created_at",
    "folder",
)


def _each(document: str) -> str:
    # The limit keeps SQLite from merging the subquery: `v` is made once for each row.
    return f"(SELECT value AS v FROM jsonb_each(new.{document}) LIMIT -1)"


def _fields(columns: tuple[str, ...]) -> str:
    return ", ".join(f"v ->> {index}" for index in range(len(columns)))


def _insert(table: str, columns: tuple[str, ...], document: str, conflict: str = "") -> str:
    names = ", ".join(columns)
    return (
        f"INSERT INTO {table} ({names}) SELECT {_fields(columns)} FROM {_each(document)} "
        f"WHERE true {conflict}"
    )


# Another process took the journal over.
_FENCE = f"""
SELECT raise(ABORT, '{FENCED}')
WHERE (SELECT value FROM main.meta WHERE key = 'epoch') IS NOT new.epoch
"""

# Versions; `compiled` travels as hexadecimal digits.
_ADD_VERSIONS = f"""
INSERT INTO versions ({", ".join(VERSION_COLUMNS)})
SELECT v ->> 0, v ->> 1, unhex(v ->> 2), v ->> 3, v ->> 4, v ->> 5, v ->> 6, v ->> 7, v ->> 8,
    v ->> 9
FROM {_each("versions")}
"""


def _move(columns: tuple[str, ...], document: str) -> tuple[str, str]:
    """Units from the state found to the state drafted.

    A null error or result leaves the stored one, an empty text clears it. One row fewer
    than drafted breaks the transaction.
    """
    plain = [name for name in columns if name not in ("id", "was", "error", "result")]
    update = f"""
UPDATE units SET {", ".join(f"{name} = draft.{name}" for name in plain)},
    error = nullif(coalesce(draft.error, units.error), ''),
    result = nullif(coalesce(draft.result, units.result), '')
FROM (
    SELECT {", ".join(f"v ->> {i} AS {name}" for i, name in enumerate(columns))}
    FROM {_each(document)}
) AS draft
WHERE units.id = draft.id AND units.state = draft.was
"""
    # Each column of a document costs a walk through its row, so the usual rows are short.
    return update, f"SELECT raise(ABORT, '{STATE_MOVED}') WHERE changes() <> new.{document}_count"


# Units that are born: just accepted, or already moved on.
_ADD_PLAIN_UNITS = _insert("units", PLAIN_COLUMNS, "plain")
_ADD_UNITS = _insert("units", UNIT_COLUMNS, "born")

_ADD_EVENTS = _insert("events", EVENT_COLUMNS, "events")

# Counters by their deltas. A new one starts at zero: none may ever be below.
_ADD_COUNTERS = """
INSERT INTO counters (name, value) SELECT key, 0 FROM json_each(new.totals)
WHERE true ON CONFLICT DO NOTHING
"""
_MOVE_COUNTERS = """
UPDATE counters SET value = counters.value + delta.value
FROM json_each(new.totals) AS delta WHERE counters.name = delta.key
"""

# Hand-overs from other pipelines.
_ADD_INBOX = _insert("inbox", ("sender", "key", "packet", "input", "at"), "inbox")

# What an input remembers, what the output noted, single facts (null forgets one).
_SET_INPUT_STATE = """
INSERT INTO input_state (input, key, value)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(new.input_state)
WHERE value ->> 2 IS NOT NULL
ON CONFLICT DO UPDATE SET value = excluded.value
"""
_FORGET_INPUT_STATE = """
DELETE FROM input_state WHERE (input, key) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each(new.input_state) WHERE value ->> 2 IS NULL
)
"""
_SET_MARKS = """
INSERT INTO marks (name, value) SELECT key, value FROM json_each(new.marks) WHERE type <> 'null'
ON CONFLICT DO UPDATE SET value = excluded.value
"""
_FORGET_MARKS = """
DELETE FROM marks WHERE name IN (SELECT key FROM json_each(new.marks) WHERE type = 'null')
"""
_SET_FACTS = """
INSERT INTO meta (key, value) SELECT key, value FROM json_each(new.facts) WHERE type <> 'null'
ON CONFLICT DO UPDATE SET value = excluded.value
"""
_FORGET_FACTS = """
DELETE FROM meta WHERE key IN (SELECT key FROM json_each(new.facts) WHERE type = 'null')
"""

# Packets that go, with their copies and their events; what was journaled of their going stays.
_GONE = "SELECT value FROM json_each(new.gone)"
_GONE_UNITS = f"SELECT id FROM units WHERE id IN ({_GONE}) OR root IN ({_GONE})"
_DELETE_EVENTS = f"""
DELETE FROM events WHERE unit IN ({_GONE_UNITS}) AND type <> '{PURGED_EVENT}'
"""
_DELETE_UNITS = f"DELETE FROM units WHERE id IN ({_GONE}) OR root IN ({_GONE})"
# Hand-overs whose keys go with their packets.
_FORGET_KEYS = "DELETE FROM inbox WHERE packet IN (SELECT value FROM json_each(new.forgotten))"

# Payloads that go; the rows, their states and errors and the story of their events stay.
_CLEARED = "SELECT value FROM json_each(new.cleared)"
_CLEAR_EVENTS = f"""
UPDATE events SET patch = NULL,
    detail = CASE WHEN type IN ({", ".join(f"'{name}'" for name in sorted(OWN_EVENTS))})
        THEN detail END
WHERE unit IN ({_CLEARED})
"""
_CLEAR_UNITS = f"UPDATE units SET data = NULL, result = NULL WHERE id IN ({_CLEARED})"

_USUAL_DOCUMENTS = (
    "epoch",
    "plain",
    "born",
    "usual",
    "usual_count",
    "changed",
    "changed_count",
    "events",
    "totals",
)
_RARE_DOCUMENTS = (
    "versions",
    "inbox",
    "input_state",
    "marks",
    "facts",
    "gone",
    "forgotten",
    "cleared",
)


def _program(name: str, documents: tuple[str, ...], steps: tuple[str, ...]) -> tuple[str, str]:
    nothing = ", ".join(f"NULL AS {document}" for document in documents)
    body = "\n".join(f"{step.strip()};" for step in steps)
    return (
        f"CREATE TEMP VIEW {name} AS SELECT {nothing}",
        f"CREATE TEMP TRIGGER {name}_program INSTEAD OF INSERT ON {name} BEGIN\n{body}\nEND",
    )


_UNITS_AND_EVENTS = (
    _ADD_PLAIN_UNITS,
    _ADD_UNITS,
    *_move(USUAL_COLUMNS, "usual"),
    *_move(CHANGED_COLUMNS, "changed"),
    _ADD_EVENTS,
    _ADD_COUNTERS,
    _MOVE_COUNTERS,
)

# For the writing connection, once: the usual transaction, and one that also holds rare sets.
PROGRAMS: Final = (
    *_program("journal_transaction", _USUAL_DOCUMENTS, (_FENCE, *_UNITS_AND_EVENTS)),
    *_program(
        "journal_transaction_whole",
        _USUAL_DOCUMENTS + _RARE_DOCUMENTS,
        (
            _FENCE,
            _ADD_VERSIONS,
            *_UNITS_AND_EVENTS,
            _ADD_INBOX,
            _SET_INPUT_STATE,
            _FORGET_INPUT_STATE,
            _SET_MARKS,
            _FORGET_MARKS,
            _SET_FACTS,
            _FORGET_FACTS,
            _DELETE_EVENTS,
            _DELETE_UNITS,
            _FORGET_KEYS,
            _CLEAR_EVENTS,
            _CLEAR_UNITS,
        ),
    ),
)

APPLY: Final = f"INSERT INTO journal_transaction VALUES ({', '.join('?' * len(_USUAL_DOCUMENTS))})"
APPLY_WHOLE: Final = (
    "INSERT INTO journal_transaction_whole VALUES "
    f"({', '.join('?' * len(_USUAL_DOCUMENTS + _RARE_DOCUMENTS))})"
)

# Texts that are too heavy for a document.
SET_DATA: Final = "UPDATE units SET data = ? WHERE id = ?"
SET_PATCH: Final = "UPDATE events SET patch = ? WHERE seq = ?"
