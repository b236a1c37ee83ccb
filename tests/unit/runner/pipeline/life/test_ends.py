"""Which end of a run wins, in every order of asking."""

from __future__ import annotations

import asyncio

import pytest

from pipo.journal.changes import Completed, Failed, Stopped
from pipo_runner.pipeline.life.ends import NEXT, Effect, End, Ends, Phase
from tests.unit.runner.pipeline.rig import AT

STOP, RESTART = End("drain", "stop"), End("drain", "restart")
NOW, SUSPEND, HALT = End("now", "stop"), End("suspend", "shutdown"), End("halt", "error at a")
LIFETIME, CUT = End("drain", "ttl", completes=True), End("suspend", "ttl", completes=True)
EVERY = (STOP, RESTART, NOW, SUSPEND, HALT, LIFETIME, CUT)
WAY: tuple[Phase, ...] = ("starting", "active", "draining", "stopping")


def ends(phase: Phase = "active", *asked: End) -> Ends:
    made = Ends()
    for step in WAY[1 : WAY.index(phase) + 1]:
        made.move_to(step)
    for end in asked:
        made.ask(end)
    return made


@pytest.mark.parametrize("end", EVERY, ids=str)
async def test_the_first_end_begins_and_is_waited_for(end: End) -> None:
    made = ends("starting")
    assert (made.end, made.works) == (None, True)
    waiting = asyncio.create_task(made.wait())
    assert made.ask(end) is Effect.BEGINS
    assert await waiting == made.end == end
    assert made.works is (end.kind == "drain")


@pytest.mark.parametrize("first", [STOP, RESTART, LIFETIME], ids=str)
@pytest.mark.parametrize("phase", ["starting", "active", "draining"])
@pytest.mark.parametrize("second", [NOW, SUSPEND, HALT], ids=str)
def test_a_drain_is_overtaken(first: End, phase: Phase, second: End) -> None:
    made = ends(phase, first)
    assert made.ask(second) is Effect.OVERTAKES
    assert made.end == second
    # Nothing overtakes twice.
    assert made.ask(SUSPEND) is made.ask(NOW) is made.ask(HALT) is Effect.NONE
    assert made.end == second


@pytest.mark.parametrize("first", [NOW, SUSPEND, HALT, CUT], ids=str)
@pytest.mark.parametrize("second", [NOW, SUSPEND, HALT, STOP, LIFETIME, CUT], ids=str)
def test_what_ends_at_once_is_overtaken_by_nothing(first: End, second: End) -> None:
    made = ends("active", first)
    assert made.ask(second) is Effect.NONE
    assert made.end == first


@pytest.mark.parametrize("first", [STOP, NOW, SUSPEND, HALT, LIFETIME, CUT], ids=str)
def test_a_run_that_stops_can_only_be_hurried(first: End) -> None:
    made = ends("stopping", first)
    for second in (STOP, RESTART, HALT, LIFETIME, CUT):
        assert made.ask(second) is Effect.NONE
    for second in (NOW, SUSPEND):
        assert made.ask(second) is Effect.HURRIES
    assert made.end == first


@pytest.mark.parametrize("first", [STOP, RESTART], ids=str)
@pytest.mark.parametrize("second", [STOP, RESTART, LIFETIME, CUT], ids=str)
def test_a_drain_keeps_its_word(first: End, second: End) -> None:
    made = ends("draining", first)
    assert made.ask(second) is Effect.NONE
    assert made.end == first


@pytest.mark.parametrize(
    ("first", "after"), [(LIFETIME, RESTART), (CUT, End("suspend", "restart"))]
)
def test_a_restart_follows_the_end_of_a_lifetime(first: End, after: End) -> None:
    made = ends("active", first)
    assert made.ask(STOP) is Effect.NONE
    assert made.end == first
    assert made.ask(RESTART) is Effect.NONE
    assert made.end == after
    made = ends("stopping", first)
    assert made.ask(RESTART) is Effect.NONE
    assert made.end == first


def test_the_last_words() -> None:
    words = [end.last_word(AT) for end in (STOP, SUSPEND, HALT, LIFETIME, CUT)]
    assert words == [
        Stopped("stop", AT),
        Stopped("shutdown", AT),
        Failed("error at a", AT),
        Completed(LIFETIME.reason, AT),
        Completed(CUT.reason, AT),
    ]


@pytest.mark.parametrize("phase", WAY)
def test_a_run_takes_no_step_back(phase: Phase) -> None:
    for step in WAY:
        made = ends(phase)
        if step in NEXT[phase]:
            made.move_to(step)
            assert made.phase == step
        else:
            with pytest.raises(AssertionError):
                made.move_to(step)
