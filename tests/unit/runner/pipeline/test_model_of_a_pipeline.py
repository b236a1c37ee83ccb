"""A real pipeline process against a model: whatever is done to it, all of its books agree.

What is drawn: pushes, a destination that fails and hangs (before it writes, and after), nodes
that break, pauses, kills at commits and writes, ends in order, replays, purges, resolutions,
reruns, acks, and time that jumps over retries, deadlines and retentions. After each of them the
journal's rows, its events and counters, the destination and the status agree with the model.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from pipo.errors import NotFound, PipoError
from pipo.journal import changes, interventions
from pipo.journal.states import BORN, PENDING, REOPENS, SETTLES
from pipo.rpc.stubs import pipo_pb2
from pipo_runner.pipeline.orders.reruns import Wanted
from tests.unit.journal.recount import counted
from tests.unit.runner.pipeline.mortal import HANGS, Doom, Mortal
from tests.unit.runner.pipeline.pipeline_model import (
    BREAKABLE,
    ESCALATED,
    KINDS,
    VERIFYING,
    Model,
    Policies,
    Row,
    World,
)

# Seconds, so that no sum of a few comes near a retry, a deadline or an age.
JUMPS = (350, 700, 4_000, 8_000)
MODES = ("works", "fails", "fails_after", *HANGS)
BROKEN = st.sets(st.sampled_from(BREAKABLE))
KINDS_PUSHED = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)
POLICIES = st.builds(
    Policies,
    retries=st.integers(0, 1),
    node=st.sampled_from(("dead_letter", "agent", "drop")),
    output=st.sampled_from(("dead_letter", "agent")),
    unacked=st.sampled_from(("dead_letter", "agent")),
    parks=st.booleans(),
)
PICKS = st.lists(st.integers(0, 11), min_size=1, max_size=3)
DOOMS = st.one_of(
    st.none(),
    st.none(),
    st.builds(Doom, st.sampled_from(("before", "after")), st.integers(1, 5)),
    st.builds(Doom, st.sampled_from(("write", "written")), st.integers(1, 2)),
)
ROWS = """
SELECT id, state, cursor,
    CASE WHEN settled_at IS NULL AND state NOT IN ('escalated', 'branched') THEN attempt ELSE 0 END,
    CASE WHEN retry_at > ? THEN retry_at END,
    write_no, acked_write_no, deadline_at, settled_at, data IS NOT NULL
FROM units
"""
NEWS = "SELECT seq, unit, type, state, detail FROM events WHERE seq > ? ORDER BY seq"
# A copy's end is told by its packet's (edge 117).
ENDS = ("packet.delivered", "packet.filtered", "packet.dropped", "packet.dead_lettered")


def moves() -> Mapping[str, list[Mapping[str | None, tuple[str, ...]]]]:
    """Where each event's changes may lead from where, as `changes.py` has it."""
    made: dict[str, list[Mapping[str | None, tuple[str, ...]]]] = {}
    for name in changes.LEGAL:
        kind = getattr(changes, name, None) or getattr(interventions, name)
        if hasattr(kind, "event"):
            made.setdefault(kind.event, []).append(kind.legal)
    made["packet.branched"] = [BORN]
    for end in ENDS:
        made[end] = [*made[end], SETTLES, changes.LEGAL["Resolved"]]
    made["dlq.replayed"].append(REOPENS)
    made["packet.rerun"].append(REOPENS)
    return made


MOVES = moves()


class Trail:
    """All events there ever were, and the state that they leave each unit in."""

    def __init__(self) -> None:
        self.seq = 0
        self.states: dict[str, str] = {}
        self.totals: Counter[str] = Counter()

    def read(self, events: Iterable[Sequence[Any]]) -> list[tuple[str, str | None, Any]]:
        """The type, unit and detail of each; every one is legal where it stands."""
        heard = []
        for seq, unit, type_, state, detail in events:
            assert seq == self.seq + 1, "an event is missing"
            self.seq = seq
            if not (unit and ":" in unit and type_ in ENDS):
                self.totals[f"total.{type_}"] += 1
            if state is not None:
                before = self.states.get(unit)
                legal = any(state in one.get(before, ()) for one in MOVES[type_])
                assert legal, f"{type_} leads {unit} from {before} to {state}"
                self.states[unit] = state
            heard.append((type_, unit, json.loads(detail or "null")))
        return heard


def picked(ids: Sequence[str], which: Iterable[int]) -> list[str]:
    """Up to as many of these as there are numbers."""
    return list(dict.fromkeys(ids[n % len(ids)] for n in which)) if ids else []


class APipeline(RuleBasedStateMachine):
    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.trail = Trail()
        self.pipeline: Mortal

    @initialize(policies=POLICIES, mode=st.sampled_from(MODES), broken=BROKEN, kinds=KINDS_PUSHED)
    def begin(self, policies: Policies, mode: str, broken: set[str], kinds: list[str]) -> None:
        self.pipeline = Mortal(Path(self.scratch.name).resolve(), policies.text)
        self.model = Model(policies, World(self.pipeline.clock.now_ms(), mode, broken))
        self.pipeline.destination.mode = mode
        self.pipeline.broken |= broken
        self.pipeline.live()
        self.model.begin_anew()
        self.push(kinds, None)

    def teardown(self) -> None:
        if hasattr(self, "pipeline"):
            self.pipeline.close()
        self.scratch.cleanup()

    # ── what is done to it ───────────────────────────────────────────────────

    @rule(kinds=KINDS_PUSHED, doom=DOOMS)
    def push(self, kinds: list[str], doom: Doom | None) -> None:
        """Several at once."""

        async def call() -> list[Any]:
            pushes = self.pipeline.process.pushes
            bodies = [json.dumps({"kind": kind}).encode() for kind in kinds]
            return await asyncio.gather(
                *(pushes.push(pipo_pb2.PushRequest(data=body)) for body in bodies),
                return_exceptions=True,
            )

        answers = self.ask(call, doom)
        came = self.came()
        if answers is not None:
            assert sorted(came.values()) == sorted(kinds)
            for kind, answer in zip(kinds, answers, strict=True):
                if kind == "invalid":
                    assert isinstance(answer, PipoError), answer
                else:
                    assert came[answer.packet_id] == kind
        assert not Counter(came.values()) - Counter(kinds)
        self.model.push(came)
        self.agree()

    @rule(mode=st.sampled_from(MODES), broken=BROKEN, doom=DOOMS)
    def turn(self, mode: str, broken: set[str], doom: Doom | None) -> None:
        """The world becomes another one."""
        hung = list(self.pipeline.destination.in_hand)
        if hung and mode in HANGS:
            mode = "works"
        self.pipeline.fate.decree(doom)
        self.pipeline.turn(mode, broken)
        before = deepcopy(self.model)
        self.model.turn(mode, broken, hung)
        if hung and self.model.paused and not self.pipeline.settle(self._rows, self.model.rows()):
            self.pipeline.die()
            self.come_back()
            self.leave_to_the_resume(before, hung)
        self.agree()

    def leave_to_the_resume(self, before: Model, hung: list[str]) -> None:
        """A death in a pause: of the writes that hung, those that were not journaled wait."""
        found, then = self.pipeline.run(self._rows()), before.rows()
        left = {id_ for id_ in hung if found[id_] == then[id_]}
        world = self.model.world
        self.model = before
        self.model.turn(world.mode, world.broken, set(hung) - left)
        self.model.may_be_written |= left

    @rule(seconds=st.sampled_from(JUMPS), doom=DOOMS)
    def jump(self, seconds: int, doom: Doom | None) -> None:
        self.pass_time(seconds, doom)

    def pass_time(self, seconds: int, doom: Doom | None) -> None:
        self.model.world.now += 1000 * seconds
        self.pipeline.fate.decree(doom)
        self.pipeline.jump(seconds)
        self.model.jump()
        self.agree()

    @rule(twice=st.booleans(), doom=DOOMS)
    def pause_or_resume(self, twice: bool, doom: Doom | None) -> None:
        pausing = self.model.paused == twice
        process = self.pipeline.process
        answer = self.ask(lambda: process.pause("") if pausing else process.resume(), doom)
        assert not isinstance(answer, PipoError)
        event = "pipeline.paused" if pausing else "pipeline.resumed"
        if self.heard_now(answer, event, unless=twice):
            (self.model.pause if pausing else self.model.resume)()
        self.agree()

    @rule(what=st.integers(0, 11), which=PICKS, doom=DOOMS)
    def decide_once(self, what: int, which: list[int], doom: Doom | None) -> None:
        self.decide(what, which, doom)

    @rule(what=st.integers(0, 11), which=PICKS, doom=DOOMS)
    def decide_more(self, what: int, which: list[int], doom: Doom | None) -> None:
        self.decide(what, which, doom)
        self.decide(what + 1, which, None)

    def decide(self, what: int, which: list[int], doom: Doom | None) -> None:
        """Something that can be done to packets as they stand, and with this draw comes to it.

        What is drawn is the same whatever a kill has left, or Hypothesis would be at a loss.
        """
        model = self.model
        choices: list[Callable[[], None]] = []
        if dead := model.packets("dead_lettered"):
            some = picked(dead, which)
            choices += [
                lambda: self.replay(some, False, doom),
                lambda: self.replay(dead, True, doom),
                lambda: self.purge(some, False, doom),
                lambda: self.purge(dead, True, doom),
            ]
        if waiting := picked(model.in_state(ESCALATED), which):
            choices += [
                lambda: self.resolve(waiting, "retry", doom),
                lambda: self.resolve(waiting, "dead_letter", doom),
                lambda: self.resolve(waiting, "drop", doom),
            ]
        for node in ("pick", "right"):
            if ended := model.rerunnable(node):
                some = picked(ended, which)
                choices += [
                    partial(self.rerun, some, node, False, doom),
                    partial(self.rerun, ended, node, True, doom),
                ]
        if model.policies.parks and model.units:
            for ids in (model.in_state(VERIFYING), list(model.units)):
                choices += [partial(self.ack, id_, doom) for id_ in picked(ids, which)[:1]]
        # Where there is nothing to decide, time brings it about.
        (choices[what % len(choices)] if choices else partial(self.pass_time, 700, doom))()

    def replay(self, ids: list[str], every: bool, doom: Doom | None) -> None:
        call = self.pipeline.process.operations.dead_letters.replay
        answer = self.ask(lambda: call([] if every else ids, every=every, by="ada"), doom)
        if self.done_to(ids, answer, "dlq.replayed"):
            self.model.replay(ids)
        self.agree()

    def purge(self, ids: list[str], every: bool, doom: Doom | None) -> None:
        call = self.pipeline.process.operations.dead_letters.purge
        answer = self.ask(lambda: call([] if every else ids, every=every, by="ada"), doom)
        if self.done_to(ids, answer, "dlq.purged"):
            self.model.purge(ids)
        self.agree()

    def resolve(self, ids: list[str], action: str, doom: Doom | None) -> None:
        call = self.pipeline.process.operations.resolutions.resolve
        answer = self.ask(
            lambda: call(ids, action=action, by="ada", by_kind="human", reason="so"), doom
        )
        written = any(self.model.units[id_].cursor == "$output" for id_ in ids)
        if action == "drop" and written:
            assert answer is None or isinstance(answer, PipoError), answer
        else:
            assert not isinstance(answer, PipoError), answer
        if self.done_to(ids, answer, "packet.resolved"):
            self.model.resolve(ids, action)
        self.agree()

    def rerun(self, ids: list[str], node: str, every: bool, doom: Doom | None) -> None:
        wanted = Wanted(node, [] if every else ids, by="ada")
        answer = self.ask(
            lambda: self.pipeline.process.operations.reruns.rerun(wanted, dry=False), doom
        )
        assert answer is None or (not isinstance(answer, PipoError) and answer.rerun == len(ids))
        if self.done_to(ids, answer, "packet.rerun"):
            self.model.rerun(ids, node)
        self.agree()

    def ack(self, id_: str, doom: Doom | None) -> None:
        unit = self.model.units[id_]
        taken = unit.is_open or unit.state == ESCALATED
        already = unit.is_acked and (taken or unit.state == "delivered") and not unit.copies
        answer = self.ask(lambda: self.pipeline.process.acks.ack(id_, "ada"), doom)
        if answer is not None:
            assert isinstance(answer, PipoError) == (not (taken or already)), answer
        if taken and not already and self.heard_now(answer, "packet.acked", unless=False):
            self.model.ack(id_)
        self.agree()

    @rule(operation=st.sampled_from(("replay", "purge", "resolve")), which=PICKS)
    def ask_for_what_cannot_be(self, operation: str, which: list[int]) -> None:
        """One bad id among good ones: nothing happens to any of them."""
        fits = ESCALATED if operation == "resolve" else "dead_lettered"
        good = self.model.in_state(fits)
        bad = [*(id_ for id_ in self.model.units if id_ not in good), "nobody"]
        if operation != "resolve":
            # A copy is none of its own.
            good = self.model.packets(fits)
        ids = [*good[:2], picked(bad, which)[0]]
        process = self.pipeline.process

        async def call() -> Any:
            if operation == "replay":
                return await process.operations.dead_letters.replay(ids, every=False, by="ada")
            if operation == "purge":
                return await process.operations.dead_letters.purge(ids, every=False, by="ada")
            return await process.operations.resolutions.resolve(
                ids, action="retry", by="ada", by_kind="human", reason=""
            )

        answer = self.ask(call, None)
        assert isinstance(answer, PipoError), answer
        assert isinstance(answer, NotFound) or ids[-1] != "nobody"
        assert self.news == []
        self.agree()

    @rule(how=st.sampled_from(("kill", "suspend", "now")))
    def start_anew(self, how: Literal["kill", "suspend", "now"]) -> None:
        if how == "kill" or self.pipeline.destination.in_hand:
            self.pipeline.die()
        else:
            self.pipeline.end(how)
            # A clean stop ends a pause (edge 305).
            self.model.paused = self.model.paused and how == "suspend"
        self.come_back()
        self.agree()

    # ── how it is asked, and what is left of it ──────────────────────────────

    def ask(self, call: Callable[[], Awaitable[Any]], doom: Doom | None) -> Any:
        """The answer, a refusal, or None after a death; then the next life has begun.

        `news` are the events that came meanwhile.
        """
        self.pipeline.fate.decree(doom)
        answer = self.pipeline.ask(call)
        if answer is None and self.pipeline.fate.dead:
            self.pipeline.die()
            self.come_back()
        self.look()
        return answer

    def come_back(self) -> None:
        self.pipeline.live()
        self.restarted = True

    restarted = False
    news: list[tuple[str, str | None, Any]]

    def look(self) -> None:
        """Reads the events that are new."""
        found = self.pipeline.run(self.pipeline.journal.rows.rows(NEWS, (self.trail.seq,)))
        self.news = self.trail.read(found)

    def came(self) -> dict[str, str]:
        """The packets that the model has not heard of, and their kinds."""
        query = "SELECT id, data FROM units WHERE root IS NULL"
        found = self.pipeline.run(self.pipeline.journal.rows.rows(query))
        known = self.model.units
        return {id_: json.loads(data)["kind"] for id_, data in found if id_ not in known}

    async def _rows(self) -> dict[str, Row]:
        found = await self.pipeline.journal.rows.rows(ROWS, (self.model.world.now,))
        return {row[0]: Row._make((*row[1:-1], bool(row[-1]))) for row in found}

    def heard_now(self, answer: Any, event: str, *, unless: bool) -> bool:
        """Whether it was done: for certain, where there is an answer."""
        told = [one for one in self.news if one[0] == event and not (one[2] or {}).get("restored")]
        assert len(told) <= (not unless)
        assert answer is None or len(told) == (not unless)
        return bool(told)

    def done_to(self, ids: Sequence[str], answer: Any, event: str) -> bool:
        """Whether it was done to all of them; never to some."""
        mine = [str(unit) for type_, unit, _ in self.news if type_ == event and unit in ids]
        assert sorted(mine) in ([], sorted(ids)), "done in part, or twice"
        if answer is not None:
            assert bool(mine) != isinstance(answer, PipoError), answer
        return bool(mine)

    # ── the books ────────────────────────────────────────────────────────────

    def agree(self) -> None:
        """Waits until everything rests; then all of the books say the same."""
        while True:
            if self.restarted:
                self.restarted = False
                self.model.begin_anew()
            if self.pipeline.settle(self._rows, self.model.rows()):
                break
            self.pipeline.die()
            self.come_back()
        self.look()
        for id_, unit in self.model.units.items():
            assert self.trail.states[id_] == unit.state
        counters = {**self.model.counters(), **self.trail.totals}
        assert counted(self.pipeline.journal.counters) == counters
        self._destination_agrees()
        self._status_agrees()

    def _destination_agrees(self) -> None:
        lines = self.pipeline.lines
        keys = [line["packet_id"] for line in lines]
        assert len(keys) == len(set(keys)), "a key was written twice"
        assert self.model.written <= set(keys) <= self.model.may_be_written
        for line in lines:
            unit = self.model.units.get(line["packet_id"])
            assert unit is None or line["data"] == {"kind": unit.kind}

    def _status_agrees(self) -> None:
        process, counts = self.pipeline.process, self.model.counters()
        stats = process.parts.statistics.message()
        pending = self.model.packets(*PENDING)
        assert process.status == ("paused" if self.model.paused else "active")
        assert (stats.pending, len(process.parts.pending)) == (len(pending), len(pending))
        assert stats.accepted == counts.get("all.accepted", 0)
        assert stats.delivered == counts.get("all.delivered", 0)
        assert stats.dead_lettered == counts.get("now.dead_lettered", 0)


def run(examples: int, steps: int, **more: Any) -> None:
    run_state_machine_as_test(
        APipeline,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whatever_happens_all_books_agree() -> None:
    run(examples=100, steps=4)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_whatever_happens_all_books_agree_for_long() -> None:
    run(examples=2000, steps=40)


@pytest.mark.parametrize("mode", ["works", "fails_after"])
def test_a_second_crash_doubles_no_write_that_the_first_left_in_doubt(mode: str) -> None:
    """Three lines stand in the file and not in the journal; others are written, then it dies again."""
    state = APipeline()
    policies = Policies(1, node="drop", output="dead_letter", unacked="dead_letter", parks=True)
    try:
        state.begin(policies=policies, mode="hangs_after", broken=set(), kinds=["plain"] * 3)
        state.start_anew(how="kill")
        state.turn(mode="fails_after", broken=set(), doom=None)
        state.turn(mode=mode, broken=set(), doom=None)
        state.push(kinds=["both", "both"], doom=None)
        state.turn(mode="works", broken=set(), doom=None)
        state.push(kinds=["both", "plain"], doom=None)
        state.start_anew(how="kill")
        state.jump(seconds=700, doom=None)
        state.push(kinds=["plain"], doom=None)
    finally:
        state.teardown()
