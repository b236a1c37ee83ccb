"""The judge of the destinations: silent about a sound one, and never about a doctored one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.crash.judge import Journal, Record, Unreadable, faults, parse
from tests.crash.matrix import FILES, SHAPES

JOURNAL = Journal(
    accepted={"A": 1, "B": 2, "C": 3},
    delivered={"A": 1, "B": 1, "C": 1},
    others={},
    last="C",
)
ALL: list[Record] = [("A", 1), ("B", 2), ("C", 3)]
APPENDED = {
    "jsonl": "".join(
        json.dumps({"packet_id": id, "data": {"id": id, "n": n}}) + "\n" for id, n in ALL
    ),
    "json": json.dumps([{"packet_id": id, "data": {"id": id, "n": n}} for id, n in ALL]) + "\n",
    "csv": "id,n\n" + "".join(f"{id},{n}\n" for id, n in ALL),
    "text": "".join(json.dumps({"id": id, "n": n}) + "\n" for id, n in ALL),
}
REPLACED = {
    "jsonl": '{"packet_id": "C", "data": {"id": "C", "n": 3}}\n',
    "json": '{\n  "id": "C",\n  "n": 3\n}\n',
    "csv": "id,n\nC,3\n",
    "text": '{"id": "C", "n": 3}\n',
}


def sound(shape: str) -> list[Record]:
    return ALL[-1:] if shape.endswith("-write") else ALL


def judged(shape: str, records: Sequence[Record], journal: Journal = JOURNAL) -> str:
    return "; ".join(faults(shape, [1, 2, 3], journal, records))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sound_destination_has_no_fault(shape: str) -> None:
    assert judged(shape, sound(shape)) == ""


@pytest.mark.parametrize("shape", SHAPES)
def test_every_doctored_destination_has_one(shape: str) -> None:
    good = sound(shape)
    doubled = judged(shape, [*good, good[-1]])
    lost = judged(shape, good[:-1])
    strange = judged(shape, [*good[:-1], ("X", good[-1][1])])
    changed = judged(shape, [*good[:-1], (good[-1][0], 7)])
    if shape.endswith("-write"):
        assert doubled == "[('C', 3), ('C', 3)] is there instead of the last, C"
        assert lost == "[] is there instead of the last, C"
        assert judged(shape, [("B", 2)]) == "[('B', 2)] is there instead of the last, C"
    else:
        key = 3 if shape == "upsert" else "C"
        assert doubled == f"doubled: {{{key!r}: 2}}"
        assert lost == f"not there: [{key!r}]"
    assert strange.startswith("X is there and was never accepted")
    assert changed.startswith("C is there with 7 instead of 3")


@pytest.mark.parametrize(
    ("journal", "fault"),
    [
        ({"accepted": {"A": 1, "B": 2}}, "answered and lost: [3]; C is there and was never"),
        ({"delivered": {"A": 1, "B": 1}}, "C was delivered 0 times"),
        ({"delivered": {"A": 1, "B": 2, "C": 1}}, "B was delivered 2 times"),
        ({"others": {"packet.dead_lettered": 1}}, "1 × packet.dead_lettered"),
    ],
)
def test_every_doctored_journal_has_one(journal: dict[str, object], fault: str) -> None:
    assert judged("insert", ALL, replace(JOURNAL, **journal)).startswith(fault)  # type: ignore[arg-type]


def text_of(shape: str) -> str:
    kind, _, mode = shape.partition("-")
    return (REPLACED if mode == "write" else APPENDED)[kind]


@pytest.mark.parametrize("shape", FILES)
def test_a_file_is_read_whole(shape: str) -> None:
    assert parse(shape, text_of(shape)) == sound(shape)


@pytest.mark.parametrize("shape", FILES)
def test_a_file_that_is_cut_short_does_not_parse(shape: str) -> None:
    """A cut behind a whole record parses, and is then a loss."""
    text = text_of(shape)
    for cut in range(1, len(text)):
        try:
            records = parse(shape, text[:cut])
        except Unreadable:
            continue
        assert judged(shape, records) != "", text[:cut]


def test_an_empty_file_is_a_loss() -> None:
    with pytest.raises(Unreadable):
        parse("jsonl-append", "")
