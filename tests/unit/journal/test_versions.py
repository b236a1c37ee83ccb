"""The versions of a pipeline, as the journal tells them."""

from __future__ import annotations

import pytest

from pipo.errors import BadRequest, NotFound
from pipo.journal import versions
from pipo.journal.changes import Delivered, Started, Written
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.packets import AT, accepted, packet_id, version


async def test_a_version_is_read_back_whole(journal: SqliteJournal) -> None:
    await journal.commit(version(2, folder="/work"))
    found = await versions.find(journal.rows, "people", "v2")
    assert (found.version, found.source, found.folder) == (2, "pipo: 2", "/work")
    assert (found.files, found.proposal) == ({"a.fn.py": "x = 1\n"}, None)
    assert found.texts.files == found.files
    assert [one.version for one in await versions.compared(journal.rows, "p", "2", "V1")] == [2, 1]


async def test_a_history_counts_pending_packets_by_version(journal: SqliteJournal) -> None:
    """Edge 346, 357."""
    await journal.commit(version(2), accepted(1), accepted(2, version=2), accepted(3, version=2))
    history = await versions.history(journal.rows)
    assert [one.version for one in history.versions] == [2, 1]
    assert history.pending == {1: 1, 2: 2}
    assert await versions.pending_of(journal.rows, 2) == 2
    assert await versions.pending_of(journal.rows, 7) == 0
    assert await versions.pending_older(journal.rows, 2) == 1
    assert await versions.pending_older(journal.rows, 7) == 3
    await journal.commit(
        Written(packet_id(1), b"{}", 1.0, 1, AT), Delivered(packet_id(1), None, AT, check="ack")
    )
    assert await versions.pending_older(journal.rows, 2) == 0


@pytest.mark.parametrize("word", ["3", "v3", "V3", "003"])
def test_words_that_mean_a_version(word: str) -> None:
    """Edge 347."""
    assert versions.number_of(word) == 3


@pytest.mark.parametrize("word", ["", "v", "newest", "-1", "3.0", "v 3", "٣", "3\n", "9" * 10])
def test_words_that_mean_none(word: str) -> None:
    with pytest.raises(BadRequest, match="version"):
        versions.number_of(word)


async def test_a_number_out_of_range_says_which_there_are(
    journal: SqliteJournal, empty: SqliteJournal
) -> None:
    with pytest.raises(NotFound, match="'people' has no version v9") as caught:
        await versions.find(journal.rows, "people", "9")
    assert caught.value.hint == "there are v1 to v1; pipo history people lists them"


async def test_a_journal_without_versions(empty: SqliteJournal) -> None:
    assert await versions.latest(empty.rows) is None
    assert (await versions.history(empty.rows)).versions == []
    with pytest.raises(NotFound) as caught:
        await versions.find(empty.rows, "people", "1")
    assert caught.value.hint.startswith("there are none yet")


async def test_the_last_start_says_what_the_file_was(journal: SqliteJournal) -> None:
    """Edge 342."""
    assert await versions.last_start(journal.rows) is None
    await journal.commit(Started(1, 0, AT, file_hash="abc"))
    assert await versions.last_start(journal.rows) == "abc"
    await journal.commit(Started(1, 0, AT, file_hash="def"))
    assert await versions.last_start(journal.rows) == "def"
