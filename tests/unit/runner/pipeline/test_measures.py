"""What a pipeline says about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pipo.home.registry import Entry
from pipo.journal import reads, units
from pipo.journal.reads import OldestPending
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo_runner.pipeline.flow.rates import MinuteRate
from pipo_runner.pipeline.flow.statistics import Statistics
from pipo_runner.pipeline.life.lifetime import Terms
from pipo_runner.pipeline.measures import Measures
from tests.unit.runner.pipeline.life.test_lifetime import Life, life
from tests.unit.runner.pipeline.rig import AT, PLAIN, FakeClock, Rig, quiet

ENTRY = Entry(
    pipeline="people",
    version=2,
    pid=7,
    host="box",
    address="",
    listen=None,
    ttl=None,
    state="running",
    status="active",
    started_at=AT,
    runner="r1",
    file="/pipelines/people.pipo",
    restarts=3,
)


class Journal:
    """Counters, and rows of which only those that wait for an ack are counted."""

    awaiting_ack = 0

    def __init__(self, **counters: int) -> None:
        self.counters = {name.replace("__", "."): count for name, count in counters.items()}
        self.last_seq = 41

    @property
    def rows(self) -> JournalRows:
        return JournalRows(self.awaiting_ack)


class JournalRows:
    def __init__(self, awaiting_ack: int) -> None:
        self._awaiting_ack = awaiting_ack

    async def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        assert sql == units.AWAITING_ACK
        return [(self._awaiting_ack,)]

    async def together(self, *queries: Any) -> list[list[Any]]:
        return [[] for _ in queries]


@pytest.fixture
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(rows: Any) -> None:
        return None

    async def no_latency(rows: Any, nodes: Sequence[str]) -> list[Any]:
        return []

    monkeypatch.setattr(reads, "oldest_pending", nothing)
    monkeypatch.setattr(reads, "latency", no_latency)


def measures_of(journal: Journal) -> Measures:
    """The numbers nine seconds after the start, five packets in."""
    clock = FakeClock()
    rate = MinuteRate()
    made = Measures(journal, Statistics(journal, rate, clock))  # type: ignore[arg-type]
    clock.passed_s = 9.9
    rate.add(5, clock.monotonic())
    return made


async def info(measures: Measures, **given: Any) -> pipo_pb2.PipelineInfo:
    words: dict[str, Any] = {
        "plan": Rig().plans.current(),
        "checkers": 1,
        "verifying": 0,
        "now_ms": AT + 5000,
        "routes": {},
        "paused_reason": None,
        "held": 0,
        "stalled_at": None,
        "lifetime": Life(Terms()).made,
    }
    return await measures.info(ENTRY, **words | given)


def series(measures: Measures, **given: Any) -> dict[str, list[pipeline_pb2.MetricSeries]]:
    words: dict[str, Any] = {
        "status": "active",
        "jammed": False,
        "checkers": 2,
        "refused": Counter(),
    }
    made: dict[str, list[pipeline_pb2.MetricSeries]] = {}
    for one in measures.series(**words | given):
        made.setdefault(one.name, []).append(one)
    return made


@pytest.mark.usefixtures("no_rows")
async def test_status_shows_the_process_and_its_counts() -> None:
    journal = Journal(all__accepted=12, all__delivered=8, now__verifying=1)
    found = await info(measures_of(journal))
    assert (found.name, found.pid, found.version, found.restarts) == ("people", 7, 2, 3)
    assert (found.stats.accepted, found.stats.in_per_min, found.stats.uptime) == (12, 5, 9)
    assert (found.checkers, found.last_seq, list(found.notes)) == (1, 41, [])
    assert not found.stats.HasField("last_delivery_at")
    assert [(one.name, one.via, one.address) for one in found.inputs] == [("input", "push", "")]
    assert [(one.format, one.auth) for one in found.inputs] == [("json", False)]


@pytest.mark.usefixtures("no_rows")
async def test_what_waits_for_an_ack_is_counted() -> None:
    journal = Journal()
    journal.awaiting_ack = 3
    found = await info(measures_of(journal))
    assert found.awaiting_ack == 3


@pytest.mark.usefixtures("no_rows")
async def test_the_journal_is_asked_again_once_something_happened() -> None:
    journal = Journal()
    measures = measures_of(journal)
    plan, other = Rig().plans.current(), Rig().plans.current()
    assert (await info(measures, plan=plan)).awaiting_ack == 0
    journal.awaiting_ack = 3
    assert (await info(measures, plan=plan)).awaiting_ack == 0
    # An event, or another version with other nodes.
    assert (await info(measures, plan=other)).awaiting_ack == 3
    journal.awaiting_ack = 4
    journal.last_seq += 1
    assert (await info(measures, plan=other)).awaiting_ack == 4


@pytest.mark.usefixtures("no_rows")
async def test_a_pause_is_told_with_its_reason_and_the_way_out() -> None:
    measures = measures_of(Journal())
    found = await info(measures)
    assert not found.HasField("paused_reason")
    found = await info(measures, paused_reason="manual")
    assert (found.paused_reason, found.held) == ("manual", 0)
    assert list(found.notes) == ["paused: manual; it goes on with: pipo resume people"]
    found = await info(measures, paused_reason="error at $output", held=2)
    assert found.held == 2
    assert list(found.notes) == [
        "paused: error at $output; 2 packet(s) held; it goes on with: pipo resume people"
    ]


@pytest.mark.usefixtures("no_rows")
async def test_a_jam_is_noted_with_its_place() -> None:
    found = await info(measures_of(Journal()), stalled_at="enrich")
    assert list(found.notes) == ["stalled at 'enrich'"]


@pytest.mark.usefixtures("no_rows")
async def test_a_missing_checker_is_noted_only_while_units_wait() -> None:
    measures = measures_of(Journal())
    assert list((await info(measures, checkers=0, verifying=0)).notes) == []
    assert list((await info(measures, checkers=0, verifying=3)).notes) == [
        "no checker attached; 3 written packet(s) wait for one"
    ]


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize(
    ("route", "address"),
    [("POST /a", "POST /in/people/a"), ("GET /", "GET /in/people"), ("", "")],
)
async def test_an_input_shows_its_public_address(route: str, address: str) -> None:
    found = await info(measures_of(Journal()), routes={"input": route})
    assert found.inputs[0].address == address


@pytest.mark.usefixtures("no_rows")
async def test_the_oldest_packets_age_is_never_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def oldest(rows: Any) -> OldestPending:
        return OldestPending("u1", AT + 60_000)

    monkeypatch.setattr(reads, "oldest_pending", oldest)
    found = await info(measures_of(Journal()))
    assert found.stats.oldest_pending_received_at == AT + 60_000
    assert found.stats.oldest_pending_ms == 0


def test_series_name_the_state_the_checkers_and_the_refused() -> None:
    refused = Counter({("hook", "buffer_full"): 3, ("hook", "not_running"): 1})
    made = series(measures_of(Journal()), refused=refused)
    assert [one.value for one in made["pipo_checkers_attached"]] == [2]
    assert [dict(one.labels) for one in made["pipo_pipeline_state"]] == [{"state": "active"}]
    assert [(dict(one.labels), one.value) for one in made["pipo_intake_refused_total"]] == [
        ({"input": "hook", "reason": "buffer_full"}, 3),
        ({"input": "hook", "reason": "not_running"}, 1),
    ]


def test_a_paused_pipeline_may_be_jammed_besides() -> None:
    made = series(measures_of(Journal()), status="paused", jammed=True)
    assert [one.value for one in made["pipo_pipeline_jammed"]] == [1]
    assert [dict(one.labels) for one in made["pipo_pipeline_state"]] == [{"state": "paused"}]


def test_commits_and_deliveries_are_counted() -> None:
    measures = measures_of(Journal())
    measures.committed(7, 0.002)
    measures.delivered(0.25)
    made = series(measures)
    (groups,) = made["pipo_journal_group_size"]
    assert (groups.histogram.count, groups.histogram.sum) == (1, 7)
    assert made["pipo_journal_commit_duration_seconds"][0].histogram.sum == 0.002
    assert made["pipo_delivery_duration_seconds"][0].histogram.sum == 0.25


async def test_a_delivery_is_measured_from_its_acceptance() -> None:
    rig = Rig(PLAIN, auto=True)
    rig.output.hold()
    await rig.accept(1)
    rig.clock.passed_s += 3.0
    rig.output.let_go()
    await quiet()
    (seen,) = series(rig.parts.measures)["pipo_delivery_duration_seconds"]
    assert (seen.histogram.count, seen.histogram.sum) == (1, 3.0)


@pytest.mark.usefixtures("no_rows")
@pytest.mark.parametrize(("to", "feeds"), [("third", ["third"]), ("${data.to}", [])])
async def test_both_ends_of_a_chain_are_named(to: str, feeds: list[str]) -> None:
    body = (
        "inputs:\n  one: { via: pipeline, with: { from: [b, a] } }\n"
        "  two: { via: pipeline, with: { from: [c] } }\n  three: { via: push }\n"
        f'output: {{ from: [one, two, three], to: pipeline, with: {{ pipeline: "{to}" }} }}\n'
    )
    found = await info(measures_of(Journal()), plan=Rig(body).plans.current())
    assert (list(found.chain.feeds), list(found.chain.fed_by)) == (feeds, ["a", "b", "c"])
    alone = await info(measures_of(Journal()))
    assert (list(alone.chain.feeds), list(alone.chain.fed_by)) == ([], [])


@pytest.mark.usefixtures("no_rows")
async def test_what_is_left_of_a_lifetime_is_told() -> None:
    alone = await info(measures_of(Journal()))
    assert not alone.HasField("lifetime")
    one = life("ttl: 2h, max_packets: 3").begin()
    one.clock.passed_s = 600.0
    found = await info(measures_of(Journal()), lifetime=one.made)
    left_ms = 6_600_000
    assert found.lifetime == pipo_pb2.Lifetime(
        ttl="2h", ends_at=AT + 5000 + left_ms, remaining_ms=left_ms, max_packets=3
    )
    assert list(found.notes) == []
    one.accepted = 3
    one.made.moved()
    found = await info(measures_of(Journal()), lifetime=one.made)
    assert list(found.notes) == ["its lifetime is over: max_packets 3"]
    assert found.lifetime.reached == "max_packets"
    other = await info(
        measures_of(Journal()), lifetime=life("until: stats.pending > 1").begin().made
    )
    assert other.lifetime == pipo_pb2.Lifetime(until="stats.pending > 1")
