"""Which keys are looked for, which records are written, and what their results say."""

from __future__ import annotations

import pytest

from pipo.connectors.contract import Repeat
from pipo.connectors.file import lookup
from pipo.connectors.file.lookup import Place
from pipo.connectors.file.records import Record


def record(key: str, text: bytes = b"", repeat: Repeat = "first") -> Record:
    return Record(key, text, repeat)


def test_only_what_may_stand_there_is_sought() -> None:
    records = [record("a"), record("b", repeat="recovered"), record("c", repeat="repeated")]
    assert lookup.sought(records) == ({"c"}, {"b"})


def test_of_one_key_the_first_record_is_written() -> None:
    """Edge 158."""
    records = [record("a", b"1"), record("b", b"2"), record("a", b"3"), record("c", b"4")]
    fresh = lookup.fresh(records, {"c": Place(0, 1)})
    assert [made.text for made in fresh.values()] == [b"1", b"2"]


def test_the_second_record_of_a_key_was_not_written() -> None:
    found: dict[str, Place] = {"b": Place(5, 2)}
    made = {"a": Place(9, 3)}
    results = [lookup.result("/x", key, found, made) for key in "aba"]
    assert results == [
        {"path": "/x", "written": True, "offset": 9, "length": 3},
        {"path": "/x", "skipped": True, "offset": 5, "length": 2},
        {"path": "/x", "skipped": True, "offset": 9, "length": 3},
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"packet_id":"a","data":{"packet_id":"b"}}', "a"),
        (b'{"data":1,"packet_id":"a"}', "a"),
        (rb'{"packet_id":"a","data":"hi \ud83d"}', "a"),
        (rb'{"packet_id":"a","data":"hi \ud83d', None),
        (rb'["\ud83d"]', None),
        (rb'{"packet_id":1,"data":"\ud83d"}', None),
        (b'{"packet_id":1}', None),
        (b'{"packet_id":"a","da', None),
        (b'{"x":1}', None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_the_key_of_a_whole_record(text: bytes, key: str | None) -> None:
    assert lookup.key_of(text) == key


def test_half_a_surrogate_pair_is_json_and_half_a_record_is_not() -> None:
    assert lookup.is_json(rb'"\ud83d"')
    assert not lookup.is_json(rb'"\ud83d')
    assert not lookup.is_json(rb'{"a":"\ud83d"}}')
