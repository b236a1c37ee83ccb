"""The tip: the table of what may be opened, and the file itself."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

import pytest

from pipo.errors import Unavailable
from pipo.journal import tip
from pipo.journal.tip import Findings, JournalDamaged, Tip
from tests.mounts import small_disk

EVERY = [Findings(*flags) for flags in itertools.product((False, True), repeat=6)]


@pytest.mark.parametrize("findings", EVERY)
def test_every_combination_matches_exactly_one_row(findings: Findings) -> None:
    assert len([row for row in tip.TABLE if row.applies(findings)]) == 1
    assert tip.decide(findings).action in (tip.CREATE, tip.OPEN, tip.REFUSE)


def test_rows_are_numbered() -> None:
    assert [row.label for row in tip.TABLE] == [f"R{n}" for n in range(1, len(tip.TABLE) + 1)]


def found(**given: bool) -> str:
    usual = {"journal": True, "wal": True, "tip": True, "clean": False}
    rest = {"same_journal": True, "behind": False}
    row = tip.decide(Findings(**usual | rest | given))
    return f"{row.label} {row.action}"


def test_what_follows_from_what_lies_in_the_folder() -> None:
    assert found(journal=False, wal=False, tip=False) == "R1 create"
    assert found(journal=False) == "R2 refuse"
    assert found(tip=False) == "R3 open"
    assert found(same_journal=False) == "R4 refuse"
    assert found(wal=False) == "R5 refuse"
    assert found(behind=True) == "R6 refuse"
    assert found() == "R7 open"
    assert found(clean=True, wal=False) == "R7 open"
    assert found(clean=True, wal=False, behind=True) == "R6 refuse"


def test_a_tip_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert tip.read(tmp_path) is None
    made = Tip("id", 12, clean=True, at=5)
    tip.write(tmp_path, made)
    assert tip.read(tmp_path) == made
    tip.write(tmp_path, Tip("id", 13, clean=False, at=6))
    assert [path.name for path in tmp_path.iterdir()] == ["tip"]


def test_a_torn_tip_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "tip").write_bytes(b'{"journal_id":"i')
    with pytest.raises(JournalDamaged) as caught:
        tip.read(tmp_path)
    assert str(tmp_path / "tip") in caught.value.hint


def test_a_tip_that_finds_no_room_names_its_file_and_what_helps(tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", size="64k") as folder:
        made = Tip("id", 12, clean=False, at=5)
        tip.write(folder, made)
        with suppress(OSError), open(folder / "rest", "wb", buffering=0) as rest:
            while rest.write(b"x" * 4096):
                pass
        with pytest.raises(Unavailable) as failed:
            tip.write(folder, Tip("id", 13, clean=False, at=6))
        assert failed.value.message == f"cannot write {folder / 'tip'}: No space left on device"
        assert failed.value.hint == "make room on its disk, and try again"
        assert tip.read(folder) == made
