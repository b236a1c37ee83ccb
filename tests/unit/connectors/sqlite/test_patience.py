"""One wait for all locks of an attempt; one file for as long as nobody cuts it."""

from __future__ import annotations

import os
from pathlib import Path

from pipo.clock import SystemClock
from pipo.connectors.sqlite.patience import Patience
from pipo.connectors.sqlite.standing import standing


class StandingClock(SystemClock):
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_an_attempt_is_patient_until_its_time_is_over() -> None:
    clock = StandingClock()
    patience = Patience(clock)
    assert not patience(0)
    patience.begin(5.0)
    assert patience(0)
    clock.now += 4.99
    assert patience(1)
    clock.now += 0.01
    assert not patience(2)
    patience.begin(5.0)
    assert patience(3)


def test_a_file_follows_itself_until_it_is_cut_short_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert standing(str(path)) is None
    path.write_bytes(b"12345")
    before = standing(str(path))
    assert before is not None
    with path.open("ab") as file:
        file.write(b"6")
    grown = standing(str(path))
    assert grown is not None
    assert grown.follows(before)
    assert not before.follows(grown)
    other = tmp_path / "b.db"
    other.write_bytes(b"1234567")
    os.replace(other, path)
    replaced = standing(str(path))
    assert replaced is not None
    assert not replaced.follows(grown)
