"""The journal's schema: made fresh, or brought up to date by numbered migrations.

`meta.schema` holds the number of the last migration that ran. A fresh journal gets
`schema.sql` at once; a test holds that the migrations lead to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import apsw

from pipo.errors import InvalidState
from pipo.journal.connection import run

# "Pipo" as SQLite's application id: a file without it is no journal.
APPLICATION_ID = 0x5069706F


class JournalTooNew(InvalidState):
    """A newer Pipo wrote this journal."""


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and SQL of every migration, in order."""
    found = []
    for entry in files("pipo.journal").joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            number = int(entry.name.split("_", 1)[0])
            found.append((number, entry.name, entry.read_text(encoding="utf-8")))
    return sorted(found)


def fresh_schema() -> str:
    """The SQL of a fresh journal."""
    return files("pipo.journal").joinpath("schema.sql").read_text(encoding="utf-8")


def latest() -> int:
    """The schema that this Pipo writes."""
    return migrations()[-1][0]


def create(db: apsw.Connection, facts: Mapping[str, str]) -> None:
    """Makes a fresh journal with these facts in `meta`, in the transaction that is open."""
    run(db, f"PRAGMA application_id = {APPLICATION_ID}")
    run(db, fresh_schema())
    for key, value in {**facts, "schema": str(latest()), "epoch": "0"}.items():
        run(db, "INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))


def upgrade(db: apsw.Connection) -> None:
    """Runs the migrations that are missing, in the transaction that is open.

    Raises: JournalTooNew.
    """
    found = int(run(db, "SELECT value FROM meta WHERE key = 'schema'")[0][0])
    newest = latest()
    if found > newest:
        raise JournalTooNew(
            f"the journal has schema {found}, this Pipo knows up to {newest}",
            hint="run it with the newer Pipo that wrote it",
        )
    for number, _, sql in migrations():
        if number > found:
            run(db, sql)
            run(db, "UPDATE meta SET value = ? WHERE key = 'schema'", (str(number),))
