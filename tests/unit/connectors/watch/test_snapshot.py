"""When a difference counts, and how the snapshot is kept."""

from __future__ import annotations

import os

import pytest

from pipo.connectors.watch.snapshot import (
    Change,
    Snapshot,
    Stamp,
    commits,
    entry,
    readable,
    told_by,
)

ONE, TWO, THREE = Stamp(1, 1), Stamp(2, 1), Stamp(1, 2)


def see(snapshot: Snapshot, name: str, seen: Stamp | None, at: float) -> Change | None:
    return snapshot.see(name, seen, began=at, ended=at)


def test_a_difference_counts_once_it_was_seen_twice() -> None:
    snapshot = Snapshot({"a": ONE, "b": ONE}, settle_s=0.5)
    for name, stamp in (("a", TWO), ("b", None), ("c", ONE)):
        assert see(snapshot, name, stamp, 10) is None
        assert see(snapshot, name, stamp, 10.4) is None
    assert snapshot.due(10.4, 9) == []
    assert snapshot.next_due() == 10.5
    assert snapshot.due(10.5, 2) == ["a", "b"]
    assert see(snapshot, "a", TWO, 10.5) == Change("change", "a", TWO)
    assert see(snapshot, "b", None, 10.5) == Change("delete", "b", ONE)
    assert see(snapshot, "c", ONE, 10.5) == Change("create", "c", ONE)


def test_what_moves_again_waits_again() -> None:
    snapshot = Snapshot({}, settle_s=0.5)
    assert see(snapshot, "a", ONE, 1) is None
    assert see(snapshot, "a", THREE, 1.4) is None
    assert see(snapshot, "a", THREE, 1.8) is None
    assert see(snapshot, "a", None, 1.9) is None
    assert snapshot.moving() == []
    assert see(snapshot, "a", THREE, 2) is None
    assert see(snapshot, "a", THREE, 2.5) == Change("create", "a", THREE)


def test_a_long_look_is_taken_at_its_longest() -> None:
    """The first look may have seen the file at its end, the second one at its beginning."""
    snapshot = Snapshot({}, settle_s=0.5)
    assert snapshot.see("a", ONE, began=0, ended=5) is None
    assert snapshot.see("a", ONE, began=5.4, ended=9) is None
    assert snapshot.see("a", ONE, began=5.5, ended=9) is not None


def test_what_was_told_is_known() -> None:
    snapshot = Snapshot({"a": ONE}, settle_s=0)
    for change in (Change("create", "b", TWO), Change("change", "a", TWO)):
        snapshot.tell(change)
    assert snapshot.told == {"a": TWO, "b": TWO}
    snapshot.tell(Change("delete", "a", TWO))
    assert snapshot.told == {"b": TWO}
    assert snapshot.next_due() is None


def test_what_is_left_is_found_anew() -> None:
    snapshot = Snapshot({}, settle_s=0.5)
    assert see(snapshot, "a", ONE, 0) is None
    snapshot.leave("a")
    assert see(snapshot, "a", ONE, 1) is None
    assert see(snapshot, "a", ONE, 2) is not None


@pytest.mark.parametrize(
    "name", ["a.txt", "", "sub/ü", "f:x", "b:00", os.fsdecode(b"caf\xe9"), os.fsdecode(b"\xf0\x9f")]
)
def test_every_name_is_an_entry_and_comes_back(name: str) -> None:
    (key, value) = next(iter(entry(name, Stamp(-5, 7)).items()))
    key.encode()
    assert value is not None
    assert told_by({key: value, "pattern": "/x", "mount": "/"}) == {name: Stamp(-5, 7)}
    assert list(entry(name, None)) == [key]
    readable(name).encode()


def test_a_damaged_entry_is_a_file_that_changed() -> None:
    snapshot = Snapshot(told_by({"f:a": "x"}), settle_s=0)
    assert see(snapshot, "a", ONE, 0) is None
    assert see(snapshot, "a", ONE, 0) == Change("change", "a", ONE)


def test_commits_are_bounded_and_there_is_one() -> None:
    assert commits({}, 2) == [{}]
    assert commits({"a": "1", "b": None, "c": "3"}, 2) == [{"a": "1", "b": None}, {"c": "3"}]
