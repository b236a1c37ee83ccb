"""The limits of a lifetime, in time that the test moves, and on two clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from pipo.clock import Clock
from pipo.errors import BadRequest, Unavailable
from pipo.journal.changes import LifetimeError
from pipo.lang.model import Lifetime as Stated
from pipo_runner.pipeline.life.lifetime import (
    ERRORS_TOLD_MAX,
    Lifetime,
    Limit,
    Terms,
    left_ms,
    terms_of,
)
from tests.unit.runner.pipeline.rig import (
    AT,
    PLAIN,
    FakeClock,
    FakeJournal,
    ManualTimers,
    Rig,
    pipeline_of,
    quiet,
)

HOUR_MS = 3_600_000
PUSHED = "input: { via: push }\noutput: { from: input, to: stdout }\n"


class Life:
    """One lifetime, and what it has told."""

    def __init__(
        self, terms: Terms, *, accepted: int = 0, stats: Mapping[str, Any] | None = None
    ) -> None:
        self.clock = FakeClock()
        self.timers = ManualTimers(self.clock)
        self.journal = FakeJournal()
        self.accepted = accepted
        self.stats: dict[str, Any] = {"delivered": 0, "pending": 0, **(stats or {})}
        self.looks = 0
        self.over: list[Limit] = []
        self.logged: list[str] = []
        self.made = Lifetime(
            terms,
            accepted=lambda: self.accepted,
            scope=self._scope,
            journal=self.journal,
            timers=self.timers,
            clock=cast(Clock, self.clock),
            redact=lambda text: text.replace("s3cret", "***"),
            log=lambda level, message, **keys: self.logged.append(message),
        )
        self.made.on_over = self.over.append

    def _scope(self) -> dict[str, Any]:
        self.looks += 1
        return {"stats": self.stats | {"uptime": int(self.clock.passed_s)}, "env": {}}

    def begin(self, *, anchor_ms: int = AT, reached: str | None = None) -> Life:
        self.made.begin(anchor_ms=anchor_ms, reached=reached)
        return self


def stated(block: str) -> Stated:
    made = pipeline_of(f"{PUSHED}lifetime: {{ {block} }}\n").lifetime
    assert made is not None
    return made


def life(block: str, **given: Any) -> Life:
    return Life(terms_of(stated(block), None), **given)


# ── terms ────────────────────────────────────────────────────────────────────


def test_terms_are_those_of_the_file_as_it_writes_them() -> None:
    made = terms_of(stated("ttl: 90m, max_packets: 5, until: ' stats.pending == 0 '"), None)
    assert [str(limit) for limit in made.limits] == [
        "ttl 90m",
        "max_packets 5",
        "until stats.pending == 0",
    ]
    assert made.drains
    assert not terms_of(stated("on_end: stop"), None).drains
    assert terms_of(None, None).limits == []


@pytest.mark.seed("L021")
def test_the_ttl_of_a_start_replaces_that_of_the_file() -> None:
    made = terms_of(stated("ttl: 2h, max_packets: 5, on_end: stop"), "30m")
    assert (made.ttl_ms, made.ttl, made.max_packets, made.drains) == (1_800_000, "30m", 5, False)
    # Edge 325: also where the file has none.
    assert str(terms_of(None, "30m").limits[0]) == "ttl 30m"


@pytest.mark.parametrize("ttl", ["soon", "0s", "0ms", "", "1000001d", "30"])
def test_what_is_no_ttl_is_refused(ttl: str) -> None:
    with pytest.raises(BadRequest, match="ttl"):
        terms_of(None, ttl)


def test_a_refusal_names_the_limit_and_its_value() -> None:
    """Edge 4, 84."""
    most = Limit("max_packets", "3").refusal("people")
    assert "lifetime.max_packets (3)" in most.message
    assert "lifetime.max_packets" in most.hint
    until = Limit("until", "stats.delivered >= 3").refusal("people")
    assert "lifetime.until (stats.delivered >= 3)" in until.message
    ttl = Limit("ttl", "2h").refusal("people")
    assert "pipeline is draining" in ttl.message
    assert "lifetime" in ttl.hint


# ── ttl ──────────────────────────────────────────────────────────────────────


@pytest.mark.seed("L003", "L017", "L020")
async def test_a_ttl_counts_from_its_anchor() -> None:
    one = life("ttl: 2h").begin(anchor_ms=AT - HOUR_MS)
    assert one.made.left_ms == HOUR_MS
    await one.timers.elapse(3599.9)
    assert one.over == []
    await one.timers.elapse(0.1)
    assert one.over == [Limit("ttl", "2h")]
    assert one.made.left_ms == 0
    # Once per run.
    await one.timers.elapse(7200)
    assert len(one.over) == 1


@pytest.mark.seed("L020")
@pytest.mark.parametrize("late_ms", [0, 1, HOUR_MS])
async def test_a_ttl_that_is_over_ends_at_once(late_ms: int) -> None:
    one = life("ttl: 2h").begin(anchor_ms=AT - 2 * HOUR_MS - late_ms)
    assert one.over == [Limit("ttl", "2h")]
    assert one.timers.waits_s == []


async def test_a_ttl_of_weeks_ends_no_earlier() -> None:
    """Edge 320."""
    one = life("ttl: 90d").begin()
    assert max(one.timers.waits_s) <= 86_400
    await one.timers.elapse(90 * 86_400 - 1)
    assert one.over == []
    await one.timers.elapse(1)
    assert one.over == [Limit("ttl", "90d")]


async def test_a_timer_that_fires_early_ends_nothing() -> None:
    one = life("ttl: 2h").begin()
    one.made._ttl_due()
    assert one.over == []


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 30 * 24 * HOUR_MS, -30 * 24 * HOUR_MS])
async def test_a_jump_of_the_wall_clock_moves_no_end(jump_ms: int) -> None:
    one = life("ttl: 2h, until: stats.uptime >= 7000").begin()
    one.clock.set_ms = jump_ms
    assert one.made.left_ms == 2 * HOUR_MS
    await one.timers.elapse(6999)
    assert one.over == []
    await one.timers.elapse(1)
    assert one.over == [Limit("until", "stats.uptime >= 7000")]
    one = life("ttl: 2h").begin()
    one.clock.set_ms = jump_ms
    await one.timers.elapse(7199)
    assert one.over == []
    await one.timers.elapse(1)
    assert len(one.over) == 1


def test_no_restart_waits_longer_than_a_whole_ttl() -> None:
    assert left_ms(5000, anchor_ms=1000, now_ms=4000) == 2000
    assert left_ms(5000, anchor_ms=1000, now_ms=9000) == -3000
    # The clock was set back since.
    assert left_ms(5000, anchor_ms=HOUR_MS, now_ms=0) == 5000


# ── max_packets ──────────────────────────────────────────────────────────────


@pytest.mark.seed("L004")
async def test_the_last_packet_ends_it() -> None:
    one = life("max_packets: 3").begin()
    for count, over in ((2, []), (3, [Limit("max_packets", "3")])):
        one.accepted = count
        one.made.moved()
        assert one.over == over
    # Nothing is waited for.
    assert one.timers.waits_s == []


@pytest.mark.parametrize("accepted", [3, 4])
def test_a_start_at_the_limit_is_over_at_once(accepted: int) -> None:
    """Edge 313."""
    assert life("max_packets: 3", accepted=accepted).begin().over == [Limit("max_packets", "3")]


# ── until ────────────────────────────────────────────────────────────────────


@pytest.mark.seed("L010")
def test_until_is_looked_at_at_the_start() -> None:
    one = life("until: stats.delivered >= 3", stats={"delivered": 3}).begin()
    assert one.over == [Limit("until", "stats.delivered >= 3")]


@pytest.mark.seed("L005", "L011")
async def test_until_is_looked_at_after_each_commit_once() -> None:
    one = life("until: stats.delivered >= 3").begin()
    assert one.looks == 1
    for _ in range(5):
        one.made.moved()
    await quiet()
    # Five of one commit are one look.
    assert one.looks == 2
    one.stats["delivered"] = 3
    one.made.moved()
    await quiet()
    assert one.over == [Limit("until", "stats.delivered >= 3")]


@pytest.mark.seed("L011")
@pytest.mark.parametrize("counter", ["accepted", "delivered"])
async def test_acceptances_and_ends_are_looked_at_before_the_second_is_over(counter: str) -> None:
    rig = Rig(f"{PLAIN}lifetime: {{ until: stats.{counter} >= 1 }}\n", auto=True)
    over: list[Limit] = []
    rig.parts.lifetime.on_over = over.append
    rig.parts.lifetime.begin(anchor_ms=AT, reached=None)
    rig.output.hold()
    if counter == "accepted":
        rig.journal.counters["all.accepted"] = 1
    await rig.accept({"n": 1})
    await quiet()
    assert bool(over) is (counter == "accepted")
    rig.journal.counters["all.delivered"] = 1
    rig.output.let_go()
    await quiet()
    # No time has passed.
    assert over == [Limit("until", f"stats.{counter} >= 1")]


@pytest.mark.seed("L012")
async def test_until_is_looked_at_once_a_second() -> None:
    """Edge 316."""
    one = life("until: stats.uptime >= 3").begin()
    await one.timers.elapse(2.9)
    assert (one.over, one.looks) == ([], 3)
    await one.timers.elapse(0.1)
    assert one.over == [Limit("until", "stats.uptime >= 3")]
    assert one.timers.waits_s == []


def test_nothing_is_waited_for_without_until() -> None:
    assert life("ttl: 2h, max_packets: 3").begin().timers.waits_s == [7200.0]
    assert Life(terms_of(None, None)).begin().timers.waits_s == []


@pytest.mark.seed("L015")
async def test_an_until_that_cannot_be_told_is_told_of_once() -> None:
    """Edge 315."""
    one = life("until: 'upper(stats.delivered) == \"X\"'").begin()
    await one.timers.elapse(3)
    assert one.over == []
    (told,) = one.journal.of(LifetimeError)
    assert told.expression == 'upper(stats.delivered) == "X"'
    assert told.error
    assert len(one.logged) == 1


async def test_errors_are_bounded_and_masked() -> None:
    one = life("until: upper(stats.delivered) == 1")
    until = one.made.terms.until
    assert until is not None
    for number in range(3 * ERRORS_TOLD_MAX):
        one.made._tell(until, f"error {number % 20}")
    assert len(one.journal.of(LifetimeError)) == len(one.logged) == ERRORS_TOLD_MAX


async def test_an_error_that_the_journal_has_no_room_for_is_told_later() -> None:
    one = life("until: upper(stats.delivered) == 1")
    one.journal.refuses = Unavailable("too many")
    one.begin()
    assert one.logged == []
    one.journal.refuses = None
    await one.timers.elapse(1)
    assert len(one.journal.of(LifetimeError)) == len(one.logged) == 1


# ── one end, and what outlives a crash ───────────────────────────────────────


async def test_nothing_ends_a_lifetime_after_another_end() -> None:
    one = life("ttl: 2h, max_packets: 3, until: stats.delivered >= 3").begin()
    one.made.moved()
    one.made.end()
    one.accepted = one.stats["delivered"] = 3
    one.made.moved()
    await quiet()
    await one.timers.elapse(10_000)
    assert (one.over, one.made.reached) == ([], None)


@pytest.mark.parametrize(
    ("reached", "over"),
    [
        ("until stats.uptime >= 600", True),
        ("until stats.uptime >= 500", False),
        ("max_packets 3", False),
        (None, False),
    ],
)
def test_a_run_goes_on_ending_for_the_limit_of_the_one_before(
    reached: str | None, over: bool
) -> None:
    """A condition that holds no longer is no way back; another condition is."""
    one = life("until: stats.uptime >= 600").begin(reached=reached)
    assert bool(one.over) is over
