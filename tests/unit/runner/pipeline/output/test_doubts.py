"""Who is in doubt keeps the output's notes where they are."""

from __future__ import annotations

from collections.abc import Mapping

from pipo_runner.pipeline.flow.units import OUTPUT, VERIFY, Unit
from pipo_runner.pipeline.output.doubts import Doubts

MARKS: Mapping[str, int | None] = {"a.jsonl": 7, "rested.jsonl": None}
NOT_YET = {"rested.jsonl": None}


class Standing:
    """The pending units, and the packets that have split."""

    def __init__(self) -> None:
        self.units: dict[str, Unit] = {}
        self.split: set[str] = set()

    def find(self, unit_id: str) -> Unit | None:
        return self.units.get(unit_id)

    def holds(self, packet_id: str) -> bool:
        return packet_id in self.units or packet_id in self.split


def doubtful(pending: Standing, id: str = "p") -> Unit:
    unit = Unit(
        id=id,
        version=1,
        input="input",
        trigger="push",
        source="api",
        received_at=0,
        queue_seq=1,
        cursor=OUTPUT,
        data={},
        size=2,
        repeat="recovered",
    )
    pending.units[id] = unit
    return unit


def test_without_doubts_everything_is_noted() -> None:
    assert Doubts(Standing()).to_note(MARKS) == MARKS


def test_a_doubt_holds_the_notes_until_it_is_written_or_has_ended() -> None:
    pending = Standing()
    doubts = Doubts(pending)
    written, ended = doubtful(pending, "written"), doubtful(pending, "ended")
    doubts.add(written)
    doubts.add(ended)
    assert doubts.to_note(MARKS) == NOT_YET
    written.cursor = VERIFY
    assert doubts.to_note(MARKS) == NOT_YET
    del pending.units["ended"]
    assert doubts.to_note(MARKS) == MARKS


def test_a_split_packet_is_in_doubt_as_long_as_its_copies_move() -> None:
    pending = Standing()
    doubts = Doubts(pending)
    doubts.add(doubtful(pending))
    del pending.units["p"]
    pending.split.add("p")
    assert doubts.to_note(MARKS) == NOT_YET
    pending.split.clear()
    assert doubts.to_note(MARKS) == MARKS


def test_who_is_looked_for_everywhere_or_was_never_written_holds_nothing() -> None:
    pending = Standing()
    doubts = Doubts(pending)
    for repeat in ("first", "repeated"):
        unit = doubtful(pending, repeat)
        unit.repeat = repeat
        doubts.add(unit)
    assert doubts.to_note(MARKS) == MARKS
