from __future__ import annotations

import json

import pytest

from pipo.connectors.contract import CheckError, Impossible, Judgement, Passed, Pending, Target
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_checker import held, rhythm

AT = "2026-10-10T21:13:48.263Z"


def make(within_ms: int = 1000, spent_ms: int = 0) -> held.Held:
    return held.Held(
        id="u:1:1",
        target=Target("query", {}, None, {}),
        rhythm=rhythm.begin("query", 5.0, within_left_ms=within_ms, within_ms=within_ms),
        taken=5.0,
        spent_ms=spent_ms,
    )


def verdict(unit: held.Held, *found: tuple[Judgement | CheckError, float]) -> Verdict:
    for each, finished in found:
        settled = held.settle(unit, each, finished, AT)
    assert isinstance(settled, Verdict)
    return settled


def test_passed_carries_its_evidence_with_the_moment() -> None:
    made = verdict(make(spent_ms=300), (Passed({"rows": 1}), 5.02))
    assert (made.id, made.outcome, made.attempts) == ("u:1:1", Verdict.OUTCOME_PASSED, 1)
    assert json.loads(made.evidence) == {"rows": 1, "at": AT}
    assert 319 <= made.elapsed_ms <= 320
    assert not made.errored


def test_not_yet_says_when_to_look_again() -> None:
    assert held.settle(make(), Pending("no row", {}), 5.1, AT) == pytest.approx(5.35)
    asked = Pending("429", {}, pause_s=0.6)
    assert held.settle(make(), asked, 5.1, AT) == pytest.approx(5.7)


def test_not_yet_at_the_deadline_fails_with_what_was_missing() -> None:
    made = verdict(make(), (Pending("no row", {"rows": 0}), 5.5), (Pending("still none", {}), 6.0))
    assert (made.outcome, made.message, made.attempts) == (Verdict.OUTCOME_FAILED, "still none", 2)


def test_the_last_error_outlives_later_looks_that_could_run() -> None:
    made = verdict(
        make(),
        (CheckError("no such table: a"), 5.0),
        (CheckError("no such table: b"), 5.3),
        (Pending("no row", {"rows": 0}), 6.0),
    )
    assert (made.message, made.errored, made.attempts) == ("no such table: b", False, 3)
    assert json.loads(made.evidence) == {"rows": 0, "at": AT}


def test_errored_says_that_the_last_look_could_not_run() -> None:
    made = verdict(make(), (Pending("no row", {}), 5.0), (CheckError("locked"), 6.1))
    assert (made.message, made.errored) == ("locked", True)


def test_impossible_refuses_at_once() -> None:
    made = verdict(make(), (Impossible("the receiver's packet died", {"state": "dead"}), 5.01))
    assert (made.outcome, made.message) == (Verdict.OUTCOME_REFUSED, "the receiver's packet died")


def test_long_texts_and_evidence_are_cut() -> None:
    made = verdict(make(0), (Pending("x" * 100_000, {"body": "y" * 100_000}), 5.0))
    assert len(made.message) == held.MESSAGE_CHARS_MAX
    assert json.loads(made.evidence) == {"withheld": "100043 bytes of evidence", "at": AT}


def test_bytes_that_are_no_text_are_shown_escaped() -> None:
    made = verdict(make(0), (CheckError("cannot read /x/\udcff"), 5.0))
    assert made.message == "cannot read /x/\\udcff"


def test_evidence_that_is_no_json_says_so() -> None:
    made = verdict(make(), (Passed({"o": object()}), 5.0))
    assert "withheld" in json.loads(made.evidence)
