"""The versions of a pipeline, as the journal keeps them for ever.

Read alike in the pipeline process and by whoever looks at a journal (`Rows`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from pipo.errors import BadRequest, NotFound
from pipo.journal.recover import IS_PENDING
from pipo.journal.rows import Row, Rows

if TYPE_CHECKING:
    from pipo.lang.texts import Texts


@dataclass(frozen=True, slots=True)
class Version:
    """One version; `files` has the text of each file by its path as the source writes it.

    `folder` is what its relative paths mean; None in what an older Pipo journaled.
    """

    version: int
    source: str
    compiled: bytes
    files: Mapping[str, str]
    hash: str
    author: str
    author_kind: str
    reason: str
    proposal: str | None
    created_at: int
    folder: str | None = None

    @property
    def texts(self) -> Texts:
        # The language costs most commands, which ask for no text, a tenth of a second.
        from pipo.lang.texts import Texts

        return Texts(self.source, self.files)


@dataclass(frozen=True, slots=True)
class History:
    """Every version, newest first, and how many packets each has pending."""

    versions: list[Version]
    pending: Mapping[int, int]


# All columns, in the order of the table: a journal that no start has brought up to date yet is
# read too, and has no folder at the end.
LATEST_VERSION: Final = "SELECT * FROM versions ORDER BY version DESC LIMIT 1"
ONE_VERSION: Final = "SELECT * FROM versions WHERE version = ?"
VERSIONS: Final = "SELECT * FROM versions ORDER BY version DESC LIMIT ?"
# Pending packets by the version they are pinned to.
PENDING_BY_VERSION: Final = f"""
SELECT version, count(*) FROM units INDEXED BY units_pending
WHERE {IS_PENDING} AND root IS NULL GROUP BY version
"""
# The hash of the pipeline's file at the last start.
LAST_START: Final = "SELECT value FROM meta WHERE key = 'file_hash'"
_NUMBER: Final = re.compile(r"[vV]?([0-9]{1,9})")
# More than this nobody reads; the oldest are left out of a history.
HISTORY_LIMIT: Final = 1000


async def latest(rows: Rows) -> Version | None:
    """The newest version."""
    found = await rows.rows(LATEST_VERSION)
    return _version(found[0]) if found else None


async def one(rows: Rows, version: int) -> Version | None:
    """A version by its number."""
    found = await rows.rows(ONE_VERSION, (version,))
    return _version(found[0]) if found else None


def number_of(word: str) -> int:
    """The number that `3` or `v3` means. Raises: BadRequest, for other words (edge 347)."""
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise BadRequest(
            f"{word[:50]!r} names no version" if word else "version is missing",
            hint="versions are numbered: 3, or v3",
        )
    return int(found[1])


async def find(rows: Rows, pipeline: str, word: str) -> Version:
    """The version that a word names.

    Raises: BadRequest; NotFound, with the versions there are.
    """
    number = number_of(word)
    found = await one(rows, number)
    if found is None:
        newest = await latest(rows)
        there = "none yet" if newest is None else f"v1 to v{newest.version}"
        raise NotFound(
            f"pipeline {pipeline!r} has no version v{number}",
            hint=f"there are {there}; pipo history {pipeline} lists them",
        )
    return found


async def history(rows: Rows) -> History:
    """Every version, newest first."""
    found, pending = await rows.together((VERSIONS, (HISTORY_LIMIT,)), (PENDING_BY_VERSION, ()))
    return History([_version(row) for row in found], dict(pending))


async def compared(rows: Rows, pipeline: str, old: str, new: str) -> tuple[Version, Version]:
    """Two versions by their words. Raises: as `find`."""
    return await find(rows, pipeline, old), await find(rows, pipeline, new)


async def pending_of(rows: Rows, version: int) -> int:
    """How many pending packets are pinned to a version."""
    found = await rows.rows(PENDING_BY_VERSION)
    return sum(count for one, count in found if one == version)


async def pending_older(rows: Rows, version: int) -> int:
    """How many pending packets are pinned to any other version (edge 346)."""
    found = await rows.rows(PENDING_BY_VERSION)
    return sum(count for other, count in found if other != version)


async def last_start(rows: Rows) -> str | None:
    """The hash of the pipeline's file at the last start; None where an older Pipo started it."""
    found = await rows.rows(LAST_START)
    return str(found[0][0]) if found else None


def _version(row: Row) -> Version:
    version, source, compiled, files, *rest = row
    return Version(version, source, compiled, msgspec.json.decode(files), *rest)
