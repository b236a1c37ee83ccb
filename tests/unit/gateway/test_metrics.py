from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipo.access.stopped import Numbers
from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo.rpc.stubs import pipeline_pb2
from pipo_gateway.families import FAMILIES
from pipo_gateway.metrics import JAMMED, STATE, _jammed, _of_journal, _of_process
from tests.unit.gateway.fake_pipeline import FakePipeline


async def scrape(client: aiohttp.ClientSession) -> dict[str, list[tuple[dict[str, str], float]]]:
    async with client.get("/metrics") as got:
        assert got.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await got.text()
    assert text.count("# TYPE pipo_pipeline_state ") == 1
    families = list(text_string_to_metric_families(text))
    assert {f.type for f in families} <= {"counter", "gauge", "histogram"}
    assert all(f.documentation for f in families)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def state_of(found: dict[str, list[tuple[dict[str, str], float]]], pipeline: str) -> str:
    (state,) = [
        labels["state"]
        for labels, value in found["pipo_pipeline_state"]
        if labels["pipeline"] == pipeline and value == 1
    ]
    return state


async def test_every_pipeline_running_or_not(
    home: Home, client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    desired.write(home.pipeline("old"), Desired("running", "/w/old.pipo", state="crashed"))
    desired.write(home.pipeline("gone"), Desired("running", "/w/gone.pipo", state="running"))
    home.pipeline("bare").ensure()
    found = await scrape(client)
    assert state_of(found, "signups") == "active"
    assert state_of(found, "old") == "crashed"
    assert state_of(found, "bare") == "stopped"
    # Its host died with it, and nobody has seen its end: the state is what `pipo status` says.
    assert state_of(found, "gone") == "backoff"
    assert {(one["pipeline"], v) for one, v in found["pipo_pipeline_jammed"]} == {
        ("signups", 0),
        ("old", 0),
        ("gone", 0),
        ("bare", 0),
    }
    for name in ("pipo_packets_accepted_total", "pipo_packets_pending", "pipo_dead_letters"):
        assert {labels["pipeline"] for labels, _ in found[name]} == {
            "signups",
            "old",
            "gone",
            "bare",
        }
    ((labels, free),) = found["pipo_home_free_bytes"]
    assert (labels, free > 0) == ({}, True)
    buckets = found["pipo_step_duration_seconds_bucket"]
    assert [(b["le"], v) for b, v in buckets] == [("0.1", 1), ("+Inf", 2)]
    assert buckets[0][0]["node"] == 'a"\n'


async def test_one_whose_journal_cannot_be_read_has_failed_as_status_says(
    home: Home, client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    place = home.pipeline("broken")
    desired.write(place, Desired("stopped", "/w/broken.pipo", state="stopped"))
    (place.folder / "journal.db").write_bytes(b"x" * 4096)
    found = await scrape(client)
    assert state_of(found, "broken") == "failed"
    assert "broken" not in {one["pipeline"] for one, _ in found["pipo_packets_pending"]}


async def test_what_is_missing_is_logged_once_and_again_when_it_is_back(
    home: Home,
    client: aiohttp.ClientSession,
    pipeline: FakePipeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "pipo.gateway.metrics")
    place = home.pipeline("broken")
    place.ensure()
    journal = place.folder / "journal.db"
    journal.write_bytes(b"x" * 4096)
    await scrape(client)
    await scrape(client)
    journal.unlink()
    await scrape(client)
    await scrape(client)
    said = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    assert [one["action"] for one in said if one.get("pipeline") == "broken"] == [
        "metrics.missing",
        "metrics.back",
    ]


@pytest.mark.parametrize("jammed", [0, 1])
def test_a_jam_is_what_the_process_says_whatever_its_state(jammed: int) -> None:
    paused = pipeline_pb2.MetricSeries(name=STATE, labels={"state": "paused"}, value=1)
    told = pipeline_pb2.MetricSeries(name=JAMMED, value=jammed)
    reply = pipeline_pb2.MetricsReply(series=[paused, told])
    assert _jammed(reply) is bool(jammed)
    # Told once, by the gateway, for pipelines that do not run too.
    assert _of_process("p", reply) == []
    assert _jammed(None) is False


async def test_the_number_of_series_does_not_depend_on_what_clients_ask(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    before = await scrape(client)
    for number in range(5):
        await client.post(f"/in/nobody-{number}/x")
        await client.post(f"/in/signups/{number}")
        await client.get(f"/api/nothing/{number}")
    after = await scrape(client)
    assert {n: len(s) for n, s in before.items()} == {n: len(s) for n, s in after.items()}
    classes = {labels["class"]: v for labels, v in after["pipo_gateway_requests_total"]}
    assert classes == {"2xx": 5, "3xx": 0, "4xx": 5, "5xx": 0}


def test_counters_become_series() -> None:
    numbers = Numbers(
        {
            "now.accepted": 2,
            "now.escalated": 1,
            "now.dead_lettered": 4,
            "all.accepted": 9,
            "total.packet.accepted": 10,
            "total.check.record_exists.passed": 7,
            "total.node.done": 99,
        },
        oldest_received_at=1_000,
        last_delivery_at=5_000,
    )
    made = {(s.name, s.labels.get("verdict")): s.value for s in _of_journal("p", numbers, 3_500)}
    assert made[("pipo_packets_accepted_total", None)] == 10
    assert made[("pipo_packets_pending", None)] == 3
    assert made[("pipo_packets_escalated", None)] == 1
    assert made[("pipo_dead_letters", None)] == 4
    assert made[("pipo_oldest_pending_age_seconds", None)] == 2.5
    assert made[("pipo_last_delivery_timestamp_seconds", None)] == 5
    assert made[("pipo_checks_total", "passed")] == 7
    assert not any(name.startswith("pipo_node") for name, _ in made)


def test_no_gauge_is_named_like_a_counter() -> None:
    for name, (kind, text) in FAMILIES.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert text.endswith(".")
