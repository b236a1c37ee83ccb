"""The tip: what the journal's folder remembers about its journal, to notice a wrong one.

`<folder>/tip` holds the journal's id, the last sequence number and whether the run
ended in order. It is written at a start, every minute while events come, and at an
orderly end, always after the commit it speaks of; at an orderly end it is written
before SQLite folds its WAL away. So a journal that knows less than its tip, or that
lost its WAL after a run that did not end in order, is not the journal that was here.
Source: decision 44.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipo.errors import InvalidState
from pipo.home import permissions


class JournalDamaged(InvalidState):
    """The journal is not what it was when Pipo last had it; nothing was changed."""


class Tip(msgspec.Struct, frozen=True):
    """What the journal was at last: every commit up to `seq` was on disk at `at`."""

    journal_id: str
    seq: int
    clean: bool
    at: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What lies in the folder; a field that cannot be asked is as in an orderly folder."""

    journal: bool
    wal: bool
    tip: bool
    clean: bool
    same_journal: bool
    behind: bool


CREATE = "create"
OPEN = "open"
REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: when it applies, what follows, and why."""

    label: str
    applies: Callable[[Findings], bool]
    action: str
    why: str


# Every combination of findings matches exactly one row.
TABLE = (
    Row("R1", lambda f: not f.journal and not f.tip, CREATE, "a new folder"),
    Row("R2", lambda f: not f.journal and f.tip, REFUSE, "its file is gone"),
    Row("R3", lambda f: f.journal and not f.tip, OPEN, "no tip was ever written"),
    Row(
        "R4",
        lambda f: f.journal and f.tip and not f.same_journal,
        REFUSE,
        "it is another journal than the one that was here",
    ),
    Row(
        "R5",
        lambda f: f.journal and f.tip and f.same_journal and not f.clean and not f.wal,
        REFUSE,
        "the last run did not end in order and its write-ahead log (journal.db-wal) is gone",
    ),
    Row(
        "R6",
        lambda f: f.journal and f.tip and f.same_journal and (f.clean or f.wal) and f.behind,
        REFUSE,
        "it is older than its tip: it was restored or damaged",
    ),
    Row(
        "R7",
        lambda f: f.journal and f.tip and f.same_journal and (f.clean or f.wal) and not f.behind,
        OPEN,
        "as the last run left it",
    ),
)


def decide(findings: Findings) -> Row:
    """The one row of the table that applies."""
    matching = [row for row in TABLE if row.applies(findings)]
    assert len(matching) == 1, f"{findings} matches {[row.label for row in matching]}"
    return matching[0]


def damaged(folder: Path, row: Row, found: str) -> JournalDamaged:
    """The refusal of one row, with what to do."""
    return JournalDamaged(
        f"the journal in {folder} is refused ({row.label}): {row.why}{found}",
        hint="put the newest journal.db (with its journal.db-wal) back; if this one is meant, "
        f"remove {folder / 'tip'} and start again: what it does not hold is lost",
    )


def read(folder: Path) -> Tip | None:
    """The tip, or None where none was written. Raises: JournalDamaged, if it is unreadable."""
    path = folder / "tip"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(raw, type=Tip)
    except msgspec.DecodeError as error:
        raise JournalDamaged(
            f"{path} is not a tip: {error}",
            hint=f"if the journal beside it is the newest, remove {path} and start again",
        ) from error


def write(folder: Path, tip: Tip) -> None:
    """Replaces the tip. Durable: on return it survives a power cut.

    Raises: PipoError, if it cannot be written.
    """
    path = folder / "tip"
    try:
        _replace(path, msgspec.json.encode(tip))
    except OSError as error:
        raise permissions.explain(path, error, doing="write") from error


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name("tip.new")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
