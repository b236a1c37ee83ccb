"""The verifier against a destination that does as it is told; time passes by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from pipo.connectors.contract import CheckError
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_checker import lane
from pipo_checker.meters import Meters
from pipo_checker.verifier import Verifier

if TYPE_CHECKING:
    from tests.unit.checker.conftest import FakeChecks, FakeConnectors, LoopClock

Scene = Callable[[Verifier, "LoopClock"], Coroutine[Any, Any, Any]]
PASSED, FAILED, REFUSED = (
    Verdict.OUTCOME_PASSED,
    Verdict.OUTCOME_FAILED,
    Verdict.OUTCOME_REFUSED,
)


@pytest.fixture
def play(connectors: FakeConnectors, patiently: Any) -> Callable[[Scene], Any]:
    """Plays a scene with a verifier."""

    def run(scene: Scene, capacity: int = 4096) -> Any:
        async def whole(clock: LoopClock) -> Any:
            async with Verifier(
                connectors, clock=clock, meters=Meters(), capacity=capacity
            ) as verifier:
                return await scene(verifier, clock)

        return patiently(whole)

    return run


async def verdicts(verifier: Verifier, count: int) -> dict[str, Verdict]:
    """The next verdicts by unit, once there are `count`."""
    found: dict[str, Verdict] = {}
    while len(found) < count:
        assert await verifier.outbox.filled(60.0), f"{len(found)} of {count} verdicts"
        found |= {verdict.id.partition(":")[0]: verdict for verdict in verifier.verdicts()}
    return found


@pytest.mark.seed("D011")
def test_looks_at_once(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> float:
        began = clock.monotonic()
        verifier.offer([offer("a", within_ms=60_000)])
        found = await verdicts(verifier, 1)
        assert (found["a"].outcome, found["a"].attempts) == (PASSED, 1)
        return clock.monotonic() - began

    checks.present.add("a")
    assert play(scene) == 0.0


@pytest.mark.seed("D012", "D014")
def test_looks_every_250_ms_until_it_passes_and_never_again(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        asyncio.get_running_loop().call_later(0.6, checks.present.add, "a")
        verifier.offer([offer("a")])
        found = await verdicts(verifier, 1)
        assert (found["a"].outcome, found["a"].attempts) == (PASSED, 4)
        await asyncio.sleep(5)

    play(scene)
    assert checks.times == pytest.approx([0.0, 0.25, 0.5, 0.75])


@pytest.mark.seed("D013")
def test_who_is_told_of_news_looks_then_and_at_the_deadline_only(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    def tell(id: str) -> None:
        checks.present.add(id)
        checks.news[id].set_result(None)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        asyncio.get_running_loop().call_later(3.3, tell, "a")
        verifier.offer([offer("a", within_ms=8_000), offer("b", within_ms=8_000)])
        found = await verdicts(verifier, 2)
        assert (found["a"].outcome, found["a"].attempts) == (PASSED, 2)
        assert (found["b"].outcome, found["b"].message) == (FAILED, "it will be told")
        await asyncio.sleep(5)

    checks.tells = True
    play(scene)
    assert checks.times == pytest.approx([0.0, 3.3, 8.0])
    assert [units for _, _, units in checks.looks] == [["a", "b"], ["a"], ["b"]]


def test_news_that_change_nothing_lead_to_one_look(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a", within_ms=1_000)])
        await asyncio.sleep(0.1)
        checks.news["a"].set_result(None)
        found = await verdicts(verifier, 1)
        assert (found["a"].outcome, found["a"].attempts) == (FAILED, 3)

    checks.tells = True
    play(scene)
    assert checks.times == pytest.approx([0.0, 0.1, 1.0])


def test_a_withdrawn_one_is_not_looked_at_for_its_news(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a", within_ms=60_000), offer("b", within_ms=60_000)])
        await asyncio.sleep(0.1)
        verifier.withdraw(["a:1:1"])
        checks.news["a"].set_result(None)
        await asyncio.sleep(1)

    checks.tells = True
    play(scene)
    assert checks.times == [0.0]


def test_a_within_below_250_ms_is_the_interval(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> Verdict:
        verifier.offer([offer("a", within_ms=100)])
        return (await verdicts(verifier, 1))["a"]

    made = play(scene)
    assert (made.outcome, made.message, made.attempts) == (FAILED, "no a there", 2)
    assert 100 <= made.elapsed_ms < 105
    assert checks.times == pytest.approx([0.0, 0.1])


def test_one_look_is_made_however_little_is_left(play: Any, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> Verdict:
        verifier.offer([offer("a", within_left_ms=-5)])
        return (await verdicts(verifier, 1))["a"]

    made = play(scene)
    assert (made.outcome, made.attempts, made.elapsed_ms) == (FAILED, 1, 10_000)


@pytest.mark.seed("D019", "D020")
def test_a_look_that_cannot_run_is_tried_again_and_its_error_is_the_message(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    errors = iter(["no such table: a", "no such table: b"])

    async def before(place: str, targets: Any) -> Any:
        error = next(errors, None)
        if error:
            raise CheckError(error)

    async def scene(verifier: Verifier, clock: LoopClock) -> dict[str, Verdict]:
        verifier.offer([offer("a", within_ms=1000), offer("b", within_ms=1000)])
        return await verdicts(verifier, 2)

    checks.before = before
    checks.present.add("b")
    found = play(scene)
    assert (found["b"].outcome, found["b"].attempts) == (PASSED, 3)
    assert (found["a"].outcome, found["a"].message) == (FAILED, "no such table: b")
    assert not found["a"].errored
    assert found["a"].elapsed_ms >= 1000


def test_what_is_due_at_one_place_shares_a_look(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def slowly(place: str, targets: Any) -> None:
        await asyncio.sleep(0.02)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        names = [f"u{n}" for n in range(60)]
        checks.present.update(names)
        verifier.offer([offer(name) for name in names[:20]])
        await asyncio.sleep(0.01)
        for name in names[20:]:
            verifier.offer([offer(name)])
        await verdicts(verifier, 60)

    checks.before = slowly
    play(scene)
    assert [len(units) for _, _, units in checks.looks] == [20, 40]
    assert not checks.overlapped


def test_groups_grow_while_looks_are_quick(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        checks.present.update(f"u{n}" for n in range(2000))
        verifier.offer([offer(f"u{n}") for n in range(2000)])
        await verdicts(verifier, 2000)

    play(scene)
    assert [len(units) for _, _, units in checks.looks] == [32, 64, 128, 256, 512, 512, 496]


def test_a_place_where_each_unit_costs_much_gets_small_groups(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    """Otherwise every look would end at its deadline, and nothing would ever pass."""

    async def half_a_second_each(place: str, targets: Any) -> None:
        await asyncio.sleep(0.5 * len(targets))

    async def scene(verifier: Verifier, clock: LoopClock) -> dict[str, Verdict]:
        checks.present.update(f"u{n}" for n in range(40))
        verifier.offer([offer(f"u{n}", within_ms=60_000) for n in range(40)])
        return await verdicts(verifier, 40)

    checks.before = half_a_second_each
    assert {v.outcome for v in play(scene).values()} == {PASSED}
    assert [len(units) for _, _, units in checks.looks][:4] == [32, 8, 4, 2]


def test_a_hanging_place_holds_up_no_other(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def before(place: str, targets: Any) -> None:
        if place == "locked":
            await asyncio.sleep(3600)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        began = clock.monotonic()
        verifier.offer([offer("a", path="locked", within_ms=1000)])
        verifier.offer([offer(f"u{n}", path=f"p{n}") for n in range(300)])
        await verdicts(verifier, 300)
        assert clock.monotonic() == began
        found = await verdicts(verifier, 1)
        assert clock.monotonic() - began == pytest.approx(lane.LOOK_TIMEOUT_S)
        assert found["a"].message == "the look at locked did not end within 7 s"
        assert found["a"].errored

    checks.before = before
    checks.present.update(f"u{n}" for n in range(300))
    play(scene)


def test_a_freeze_of_the_checker_is_no_fault_of_the_destination(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    """Else a packet that is there dies of a busy host, once its `within` is over as well."""

    async def frozen(place: str, targets: Any) -> None:
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        loop._now += 11.0  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a", within_ms=3000)])
        found = await verdicts(verifier, 1)
        assert (found["a"].outcome, found["a"].attempts) == (PASSED, 1)

    checks.before = frozen
    checks.present.add("a")
    play(scene)


def test_many_slow_places_leave_slots_for_the_others(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def before(place: str, targets: Any) -> None:
        if place.startswith("slow"):
            await asyncio.sleep(5)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer(f"s{n}", path=f"slow{n}", within_ms=60_000) for n in range(100)])
        await asyncio.sleep(16)
        assert sum(checks.looking.values()) == 32
        began = clock.monotonic()
        verifier.offer([offer("a")])
        await verdicts(verifier, 1)
        assert clock.monotonic() == began

    checks.before = before
    checks.present.add("a")
    play(scene)


def test_a_look_that_ignores_its_end_is_never_overlapped(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def stubborn(place: str, targets: Any) -> None:
        until = asyncio.get_running_loop().time() + 30
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a", within_ms=1000)])
        assert "did not end" in (await verdicts(verifier, 1))["a"].message
        verifier.offer([offer("b", within_ms=1000)])
        assert "has not ended" in (await verdicts(verifier, 1))["b"].message
        checks.before = None
        checks.present.add("c")
        verifier.offer([offer("c", within_ms=60_000)])
        assert (await verdicts(verifier, 1))["c"].outcome == PASSED

    checks.before = stubborn
    play(scene)
    assert not checks.overlapped
    assert Counter(unit for _, _, units in checks.looks for unit in units) == {"a": 1, "c": 1}


def test_withdrawn_verifications_are_dropped(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a", within_ms=1000), offer("b", within_ms=1000)])
        await asyncio.sleep(0.3)
        verifier.withdraw(["a:1:1", "unknown:1:1"])
        found = await verdicts(verifier, 1)
        assert set(found) == {"b"}
        assert verifier.held_count == 0

    play(scene)
    assert [units for _, _, units in checks.looks] == [["a", "b"], ["a", "b"], ["b"], ["b"], ["b"]]


def test_a_stream_that_ends_takes_what_was_held(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def slowly(place: str, targets: Any) -> None:
        await asyncio.sleep(1)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a")])
        await asyncio.sleep(0.5)
        verifier.clear()
        again = offer("a")
        again.id = "a:1:2"
        verifier.offer([again])
        assert [v.id for v in (await verdicts(verifier, 1)).values()] == ["a:1:2"]
        assert not await verifier.outbox.filled(5)

    checks.before = slowly
    checks.present.add("a")
    play(scene)
    assert not checks.overlapped


def test_an_offer_that_is_held_already_is_not_taken_twice(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a"), offer("a")])
        assert verifier.held_count == 1

    play(scene)


def test_there_is_room_for_a_bounded_number(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a"), offer("b")])
        checks.present.update("ab")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await verifier.room()
        assert len(verifier.outbox) == 2
        verifier.verdicts()
        await verifier.room()

    play(scene, capacity=1)


def test_refused_says_why(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> dict[str, Verdict]:
        verifier.offer([offer("never"), offer("a", check="nope"), offer("b", path="broken")])
        return await verdicts(verifier, 3)

    found = play(scene)
    assert {v.outcome for v in found.values()} == {REFUSED}
    assert found["never"].message == "it was dead-lettered"
    assert "the check 'nope'" in found["a"].message
    assert found["b"].message == "KeyError: 'broken': this is a bug in Pipo"


def test_a_bug_costs_the_unit_that_met_it_and_no_other(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def scene(verifier: Verifier, clock: LoopClock) -> dict[str, Verdict]:
        verifier.offer([offer("bug", within_ms=100), offer("a")])
        return await verdicts(verifier, 2)

    checks.present.add("a")
    found = play(scene)
    assert found["a"].outcome == PASSED
    assert (found["bug"].outcome, found["bug"].errored) == (FAILED, True)
    assert found["bug"].message == "ZeroDivisionError: judged: this is a bug in Pipo"


def test_too_few_answers_are_an_error_for_all(play: Any, checks: FakeChecks, offer: Any) -> None:
    async def one_short(place: str, targets: Any) -> list[Any]:
        return []

    async def scene(verifier: Verifier, clock: LoopClock) -> dict[str, Verdict]:
        verifier.offer([offer("a", within_ms=0)])
        return await verdicts(verifier, 1)

    checks.before = one_short
    assert play(scene)["a"].message.startswith("RuntimeError: 0 answers for 1 targets")


def test_the_end_cancels_looks_and_closes_the_checks(
    play: Any, checks: FakeChecks, offer: Any
) -> None:
    async def hang(place: str, targets: Any) -> None:
        await asyncio.sleep(3600)

    async def scene(verifier: Verifier, clock: LoopClock) -> None:
        verifier.offer([offer("a")])
        await asyncio.sleep(0.1)

    checks.before = hang
    play(scene)
    assert checks.closed
    assert checks.looking == {"a": 0}
