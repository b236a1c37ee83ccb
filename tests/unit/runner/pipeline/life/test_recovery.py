"""Recovery: every combination of findings matches exactly one row."""

from __future__ import annotations

from itertools import product

import pytest

from pipo_runner.pipeline.life.recovery import TABLE, Decision, Finding, decide, told

EVERY = [Finding(*flags) for flags in product((False, True), repeat=8)]


@pytest.mark.parametrize("finding", EVERY, ids=str)
def test_each_finding_matches_one_row(finding: Finding) -> None:
    assert len([row for row in TABLE if row.matches(finding)]) == 1


def test_no_row_is_dead() -> None:
    assert {decide(finding).label for finding in EVERY} == {row.label for row in TABLE}


def test_a_written_unit_is_never_written_again() -> None:
    for finding in EVERY:
        if finding.written:
            assert decide(finding).decision not in (Decision.RUN, Decision.WAIT)


def test_what_waits_for_someone_is_left_to_them() -> None:
    for finding in EVERY:
        waits = (finding.held or finding.escalated) and not finding.split
        assert (decide(finding).decision in (Decision.HOLD, Decision.LEAVE)) is waits


def test_the_log_names_the_rows_in_words() -> None:
    assert told({"R7": 3, "R1": 1}) == "1 go on (R1), 3 wait for an ack (R7)"
    assert told({}) is None
    every = told({row.label: 1 for row in TABLE})
    assert every is not None
    assert every.count(", ") == len(TABLE) - 1
