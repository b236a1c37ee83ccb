"""The state machine: every pair of state and change that LEGAL names works, no other does."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any, get_args

import pytest

from pipo.errors import Internal
from pipo.journal import changes, families, interventions, lifecycle, states
from pipo.journal.changes import LEGAL, SETTLED, STATES, Stepped, Stopped, UnitChange
from pipo.journal.outcomes import Duplicate
from pipo.journal.sheet import IllegalChange, Sheet
from tests.unit.journal.packets import (
    AT,
    EXAMPLES,
    WAYS,
    accepted,
    dead_lettered,
    delivered,
    packet_id,
    rejected,
    retried,
    stepped,
    unverified,
    version,
    writing,
    written,
)

PAIRS = [(name, state) for name in LEGAL for state in WAYS]


# How many events a change has, where it is not one.
EVENTS_OF = {"Writing": 0, "Unheld": 0, "Expired": 0, "Cleared": 0, "FannedOut": 3}


def blank() -> Sheet:
    return Sheet(1, {}, {1}, {}, {})


def in_state(state: str | None) -> Sheet:
    sheet = blank()
    for change in WAYS[state](1):
        change.apply(sheet)
    return sheet


def seen(sheet: Sheet) -> Any:
    changed = (set(sheet.gone), list(sheet.forgotten), list(sheet.cleared))
    return (repr(sheet.rows), list(sheet.events), sheet.totals(), sheet.next_seq, changed)


def test_every_change_of_a_unit_stands_in_the_table() -> None:
    assert {cls.__name__ for cls in get_args(UnitChange)} == set(LEGAL) == set(EXAMPLES)
    for cls in get_args(UnitChange):
        assert cls.legal is LEGAL[cls.__name__]


def test_the_table_names_known_states_only() -> None:
    for legal in LEGAL.values():
        for found, targets in legal.items():
            assert found is None or found in STATES
            assert set(targets) <= set(STATES)


@pytest.mark.parametrize(("name", "state"), [p for p in PAIRS if p[1] in LEGAL[p[0]]])
def test_a_legal_change_leads_where_the_table_says(name: str, state: str | None) -> None:
    sheet = in_state(state)
    before = len(sheet.events)
    EXAMPLES[name](1).apply(sheet)
    row = sheet.rows[packet_id(1)]
    if name in ("Purged", "Expired"):
        assert (sheet.find(packet_id(1)), sheet.gone) == (None, {packet_id(1)})
    else:
        assert row.state in LEGAL[name][state]
    assert (row.settled_at is not None) == (row.state in SETTLED)
    assert (row.cursor is None) == (row.state in SETTLED or row.state == "branched")
    assert len(sheet.events) == before + EVENTS_OF.get(name, 1)


@pytest.mark.parametrize(("name", "state"), [p for p in PAIRS if p[1] not in LEGAL[p[0]]])
def test_an_illegal_change_raises_and_alters_nothing(name: str, state: str | None) -> None:
    sheet = in_state(state)
    before = seen(sheet)
    with pytest.raises(IllegalChange) as caught:
        EXAMPLES[name](1).apply(sheet)
    assert (caught.value.unit, caught.value.state) == (packet_id(1), state)
    assert caught.value.change == name
    assert seen(sheet) == before


def test_the_error_of_an_illegal_change_names_unit_state_and_change() -> None:
    with pytest.raises(IllegalChange) as caught:
        delivered(1).apply(in_state("accepted"))
    assert str(caught.value) == f"Delivered does not apply to {packet_id(1)}, which is accepted"
    assert caught.value.code == "invalid_state"
    with pytest.raises(IllegalChange, match="which does not exist"):
        delivered(2).apply(in_state("accepted"))


@pytest.mark.parametrize("module", [changes, states, families, interventions, lifecycle])
def test_the_machine_reads_no_clock_and_no_file(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert not imported & {"time", "os", "apsw", "pathlib", "datetime"}


@pytest.mark.parametrize(
    ("cursor", "state"), [("next", "processing"), ("$output", "writing"), ("$batch", "writing")]
)
def test_the_state_follows_the_next_cursor(cursor: str, state: str) -> None:
    sheet = in_state("accepted")
    stepped(1, cursor=cursor).apply(sheet)
    row = sheet.rows[packet_id(1)]
    assert (row.state, row.cursor, row.hops) == (state, cursor, 1)


def test_attempts_are_the_failed_ones_of_the_step_at_hand() -> None:
    sheet = in_state("accepted")
    retried(1, 1).apply(sheet)
    retried(1, 2).apply(sheet)
    row = sheet.rows[packet_id(1)]
    assert (row.state, row.attempt, row.retry_at) == ("accepted", 2, AT + 103)
    stepped(1).apply(sheet)
    assert (row.attempt, row.retry_at) == (0, None)
    retried(1, 1, "$output").apply(sheet)
    writing(1).apply(sheet)
    assert row.attempt == 1, "a repeated write keeps the count"
    dead_lettered(1, "$output").apply(sheet)
    assert row.attempt == 1, "a dead letter shows its last failed attempt"


def test_a_dead_letter_without_retries_lists_no_attempt() -> None:
    sheet = in_state("dead_lettered")
    assert sheet.rows[packet_id(1)].attempt == 0


def test_each_write_has_a_number_and_verifies_at_its_own_cursor() -> None:
    sheet = in_state("verifying")
    row = sheet.rows[packet_id(1)]
    assert (row.write_no, row.cursor, row.group_size) == (1, "$verify", 1)


def test_an_explicit_key_stays_with_the_unit() -> None:
    sheet = in_state("writing")
    writing(1, "ada@example.org").apply(sheet)
    writing(1).apply(sheet)
    assert sheet.rows[packet_id(1)].key == "ada@example.org"


@pytest.mark.parametrize(
    ("node", "shown", "ms"),
    [("shape", "shape", 4.0), ("$output", "output", 4.0), ("$verify", "delivered", None)],
)
def test_a_dead_letters_event_names_the_step_in_plain_words(
    node: str, shown: str, ms: float | None
) -> None:
    sheet = in_state("verifying" if node == "$verify" else "writing")
    dead_lettered(1, node, ms=4.0).apply(sheet)
    assert (sheet.events[-1][4], sheet.events[-1][8]) == (shown, ms)


def test_notes_stand_before_their_step() -> None:
    sheet = in_state("accepted")
    stepped(1, notes=(("log", {"message": "hi"}), ("seen", b'{"x":1}'))).apply(sheet)
    assert [(e[3], e[5], e[6]) for e in sheet.events[-3:]] == [
        ("log", None, '{"message":"hi"}'),
        ("seen", None, '{"x":1}'),
        ("node.done", "writing", None),
    ]


def test_a_patch_is_stored_whole_after_31_patches() -> None:
    sheet = in_state("accepted")
    value = {"n": 0, "long": "x" * 50}
    for n in range(1, 40):
        after = {**value, "n": n}
        stepped(1, cursor="next", before=value, after=after).apply(sheet)
        value = after
    stored = [event[7] for event in sheet.events if event[7] is not None]
    whole = [index for index, text in enumerate(stored, start=1) if text.startswith('{"value"')]
    assert whole == [32]
    assert sheet.rows[packet_id(1)].patched == 7


def test_a_step_that_changed_nothing_has_no_patch() -> None:
    sheet = in_state("accepted")
    stepped(1, cursor="next", before={"a": 1}, after={"a": 1}).apply(sheet)
    assert sheet.events[-1][7] is None
    assert isinstance(stepped(1), Stepped)


def test_counts_move_with_the_states_of_packets() -> None:
    sheet = in_state("delivered")
    rejected(2).apply(sheet)
    assert sheet.totals() == {
        "all.accepted": 1,
        "all.delivered": 1,
        "now.delivered": 1,
        "now.rejected": 1,
        "total.packet.accepted": 1,
        "total.output.written": 1,
        "total.packet.delivered": 1,
        "total.packet.rejected": 1,
    }


def test_checks_count_their_verdicts() -> None:
    sheet = in_state("verifying")
    unverified(1, check="query", verdict="refused", evidence=b'{"rows":0}').apply(sheet)
    assert sheet.totals()["total.check.query.refused"] == 1
    assert (sheet.events[-1][6] or "").endswith(',"evidence":{"rows":0}}')
    delivered(1, b'{"rows":1}', check="query").apply(sheet)
    assert sheet.totals()["total.check.query.passed"] == 1
    assert sheet.events[-1][6] == '{"evidence":{"rows":1}}'


def test_a_packet_needs_its_version() -> None:
    with pytest.raises(Internal, match="pinned to version 9"):
        accepted(1, version=9).apply(blank())
    with pytest.raises(Internal, match="version 1 is in the journal already"):
        version(1).apply(blank())


def test_a_key_that_comes_again_finds_its_packet() -> None:
    sheet = blank()
    assert accepted(1, key="k", source="a").apply(sheet) is None
    assert accepted(2, key="k", source="a").apply(sheet) == Duplicate(packet_id(1))
    assert accepted(3, key="k", source="b").apply(sheet) is None
    assert set(sheet.rows) == {packet_id(1), packet_id(3)}


def test_only_a_clean_end_drops_the_ttl_anchor_and_the_pause() -> None:
    from pipo.journal.changes import Completed, Failed, Started

    facts = {"ttl_anchor": "5", "pause_reason": "manual", "lifetime_over": "ttl 2h"}
    for end in (Stopped("stop", AT), Completed("ttl", AT), Failed("halt", AT)):
        sheet = Sheet(1, {}, {1}, {}, facts)
        end.apply(sheet)
        assert sheet.meta == dict.fromkeys(facts)
    sheet = Sheet(1, {}, {1}, {}, facts)
    Stopped("shutdown", AT).apply(sheet)
    Started(1, 3, AT).apply(sheet)
    assert sheet.meta == {}
    sheet = blank()
    Started(1, 0, AT).apply(sheet)
    assert sheet.meta == {"ttl_anchor": str(AT)}
    assert sheet.events == [
        (1, AT, None, "pipeline.started", None, None, '{"version":1,"recovered":0}', None, None)
    ]


def test_a_caller_is_taken_back_whole() -> None:
    sheet = in_state("accepted")
    sheet.begin_caller()
    before = seen(sheet)
    written(1).apply(sheet)
    accepted(2, data=b'"' + b"x" * 300_000 + b'"', key="k", state={"a": "b"}).apply(sheet)
    version(2).apply(sheet)
    Stopped("stop", AT).apply(sheet)
    sheet.take_back()
    assert seen(sheet) == before
    assert not sheet.rare
    assert not sheet.heavy
    assert sheet.known_versions == {1}
