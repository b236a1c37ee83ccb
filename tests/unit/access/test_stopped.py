"""What a stopped pipeline tells, from a journal that a real writer left."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from pipo.access import Access, stopped
from pipo.errors import InvalidState, NotFound
from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo.journal.endings import Ending
from pipo.rpc.stubs import pipo_pb2
from pipo.rpc.to_json import to_json
from tests.unit.access.conftest import journal_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("version", "feeds", "fed_by"),
    [
        ({}, [], []),
        (
            {
                "output": {"to": "pipeline", "settings": {"pipeline": "next"}},
                "inputs": [
                    {"via": "pipeline", "settings": {"from": ["b", "a"]}},
                    {"via": "pipeline", "settings": {"from": ["c"]}},
                    {"via": "push", "settings": {}},
                ],
            },
            ["next"],
            ["a", "b", "c"],
        ),
        ({"output": {"to": "pipeline", "settings": {"pipeline": "${data.to}"}}}, [], []),
        ({"output": {"to": "file", "settings": {"path": "./x"}}}, [], []),
    ],
)
def test_the_ends_of_a_stopped_chain(
    version: dict[str, Any], feeds: list[str], fed_by: list[str]
) -> None:
    found = stopped.chain_of(json.dumps(version).encode())
    assert (list(found.feeds), list(found.fed_by)) == (feeds, fed_by)


async def test_everything_that_is_read(journaled: Home, access: Access) -> None:
    desired.write(journaled.pipeline("old"), Desired("stopped", "/w/old.pipo", state="stopped"))
    info = await access.get_pipeline("old")
    assert (info.state, info.file, info.version) == ("stopped", "/w/old.pipo", 1)
    assert (info.stats.accepted, info.stats.pending) == (3, 3)
    assert info.last_seq == 4
    assert info.stats.oldest_pending_received_at == 10
    assert info.stats.oldest_pending_ms > 10**12
    assert not info.stats.HasField("last_delivery_at")
    (listed,) = (await access.list_pipelines()).pipelines
    listed.stats.oldest_pending_ms = info.stats.oldest_pending_ms
    assert listed == info

    request = pipo_pb2.ListPacketsRequest(pipeline="old", limit=2)
    page = await access.list_packets(request)
    assert [p.packet_id for p in page.packets] == ["01PACKET2", "01PACKET1"]
    assert (page.total, page.next, page.source) == (3, "01PACKET1", "journal")
    request.after = page.next
    rest = await access.list_packets(request)
    assert [p.packet_id for p in rest.packets] == ["01PACKET0"]
    assert not rest.HasField("next")

    trace = await access.inspect(pipo_pb2.InspectRequest(pipeline="old", packet_id="01PACKET1"))
    assert trace.source == "journal"
    assert b'"data":{"n":12345678901234567890}' in to_json(trace)
    assert trace.steps[0].event == "packet.accepted"
    with pytest.raises(NotFound, match="has no packet 'nope'"):
        await access.inspect(pipo_pb2.InspectRequest(pipeline="old", packet_id="nope"))

    events = await access.list_events(pipo_pb2.ListEventsRequest(pipeline="old", after_seq=1))
    assert [e.type for e in events.events] == ["packet.accepted"] * 3
    assert {e.pipeline for e in events.events} == {"old"}
    assert (events.last_seq, events.more, events.source) == (4, False, "journal")

    numbers = await access.numbers("old")
    assert numbers.counters["total.packet.accepted"] == 3
    assert numbers.oldest_received_at == 10
    assert await access.metrics("old") is None

    with pytest.raises(InvalidState, match="is not running") as refused:
        await access.push(pipo_pb2.PushRequest(pipeline="old", data=b"1"))
    assert refused.value.hint == "start it with: pipo start old"


async def test_watching_a_stopped_pipeline_gives_its_journal_first(
    journaled: Home, access: Access
) -> None:
    watching = access.watch_events(pipo_pb2.ListEventsRequest(pipeline="old", limit=3))
    assert [e.seq for e in (await anext(watching)).events] == [1, 2, 3]
    assert [e.seq for e in (await anext(watching)).events] == [4]
    await watching.aclose()


@pytest.mark.parametrize("wanted", ["running", "stopped"])
async def test_one_that_was_suspended_is_told_from_one_that_was_stopped(
    journaled: Home, access: Access, wanted: Literal["running", "stopped"]
) -> None:
    """Design §2: it goes on with the next engine, and a stop is for good."""
    desired.write(journaled.pipeline("old"), Desired(wanted, "/w/old.pipo", state="stopped"))
    (listed,) = (await access.list_pipelines()).pipelines
    assert listed.state == "stopped"
    goes_on = "suspended: it goes on with the next engine or runner (pipo engine start)"
    assert list(listed.notes) == ([goes_on] if wanted == "running" else [])


async def test_a_damaged_journal_hides_no_other(journaled: Home, access: Access) -> None:
    broken = journaled.pipeline("broken")
    broken.ensure()
    broken.journal.write_bytes(b"not a database" * 1000)
    found = {p.name: p for p in (await access.list_pipelines()).pipelines}
    assert found["old"].stats.accepted == 3
    assert found["broken"].state == "failed"
    assert "cannot be read" in found["broken"].error
    (way_out,) = found["broken"].notes
    assert "put a backup of its folder back, or move the folder away" in way_out


SECRETIVE = """pipo: 1
name: old
secrets: { one: env:OLD_ONE, two: REF }
input: { via: push }
output: { from: input, to: stdout }
"""


@pytest.mark.parametrize("ref", ["env:OLD_TWO", "op://vault/item/field"])
async def test_payloads_are_withheld_where_a_secret_has_no_value(
    home: Home, access: Access, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    """Edge 406: its packets may hold it, and nobody here could tell."""
    monkeypatch.setenv("OLD_ONE", "first")
    monkeypatch.delenv("OLD_TWO", raising=False)
    journal_of(home, SECRETIVE.replace("REF", ref))
    asked = pipo_pb2.InspectRequest(pipeline="old", packet_id="01PACKET1")
    trace = await access.inspect(asked)
    assert trace.withheld == ["packet.data", "steps[0].data"]
    assert not trace.packet.HasField("data")
    assert trace.steps[0].event == "packet.accepted"
    monkeypatch.setenv("OLD_TWO", "second")
    if ref.startswith("env:"):
        trace = await access.inspect(asked)
        assert (list(trace.withheld), trace.packet.data) == ([], b'{"n":12345678901234567890}')


@pytest.mark.parametrize(
    ("wanted", "ending", "state"),
    [
        ("running", Ending("completed", "max_packets", 9), "completed"),
        ("running", Ending("failed", "halt", 9), "failed"),
        ("running", Ending("stopped", "shutdown", 9), "stopped"),
        ("running", Ending("stopped", "restart", 9), "backoff"),
        ("running", None, "backoff"),
        ("stopped", Ending("stopped", "stop", 9), "stopped"),
        ("stopped", None, "stopped"),
    ],
)
@pytest.mark.parametrize("last_word", ["running", "stopping"])
async def test_an_end_that_no_host_has_seen_is_read_from_the_journal(
    journaled: Home,
    access: Access,
    monkeypatch: pytest.MonkeyPatch,
    wanted: Literal["running", "stopped"],
    ending: Ending | None,
    state: str,
    last_word: str,
) -> None:
    """Edge 447: a detached one ends by itself, or is stopped, while no host is there."""

    async def last_ending(rows: object) -> Ending | None:
        return ending

    monkeypatch.setattr(stopped, "last_ending", last_ending)
    options = {"ttl": "2h", "detached": True, "listen": 8790}
    desired.write(journaled.pipeline("old"), Desired(wanted, "/w", options, state=last_word))
    info = await access.get_pipeline("old")
    assert info.state == state
    assert (info.detached, info.HasField("ttl")) == ((wanted == "running",) * 2)
    assert not info.HasField("listen")
    assert info.HasField("lifetime") is (state == "completed")
    assert info.lifetime.reached == ("max_packets" if state == "completed" else "")
