"""The emit tap: names, details and limits (facts §4.2, edge 102)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import Context, Refused, StepCall
from pipo.journal.states import OWN_EVENTS
from pipo.telemetry.redaction import Redactor


def emitted(**settings: Any) -> list[tuple[str, Any]]:
    context = Context(
        "p", Path(), SystemClock(), lambda *a, **k: None, mask=Redactor(["s3cret"]).text
    )
    step = registry.build_step("tap", "emit", context)
    assert step.pure
    call = StepCall("u1", "tell", {"n": 1}, {}, settings)
    step.run(call)
    return call.notes


@pytest.mark.parametrize("detail", [{"n": 2**64}, [1], "text", 0, False])
def test_an_event_and_its_detail(detail: Any) -> None:
    assert emitted(event="order.late", detail=detail) == [("order.late", detail)]


def test_without_detail_there_is_none() -> None:
    assert emitted(event="packet") == [("packet", None)]


def test_a_number_is_a_name_and_a_secret_none() -> None:
    assert emitted(event=7) == [("7", None)]
    assert emitted(event="x.s3cret") == [("x.***", None)]


@pytest.mark.parametrize("name", ["", None, " ", "a b", "a\n", "\x1b[1m", {}, [], "x" * 101])
def test_what_no_event_can_be_called_is_refused(name: Any) -> None:
    with pytest.raises(Refused, match="which no event can be called"):
        emitted(event=name)


@pytest.mark.parametrize("name", [*sorted(OWN_EVENTS), "log", "pipeline.stopped", "proposal.x"])
def test_pipos_own_events_are_nobody_elses(name: str) -> None:
    """Counters, traces and recovery go by them."""
    with pytest.raises(Refused, match="is an event of Pipo's own"):
        emitted(event=name)


def test_a_detail_fits_in_one_message() -> None:
    assert emitted(event="e", detail="x" * (512 * 1024 - 2))
    with pytest.raises(Refused, match="an event carries up to 512 KB"):
        emitted(event="e", detail="x" * (512 * 1024 - 1))


def test_half_an_emoji_in_a_detail_stands_as_its_escape() -> None:
    assert emitted(event="e", detail={"at": ["\ud83d"]}) == [("e", {"at": ["\\ud83d"]})]
