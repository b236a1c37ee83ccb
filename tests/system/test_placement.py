"""Several runner hosts on one home: who gets a start, who takes up what, and who leaves it alone.

Services are processes of their own (tests/several_hosts.py), which are frozen and killed here. The
judge of "never doubled" is the journal's epoch: each process that opens it for writing raises it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pipo.home import Home, registry, tokens
from pipo.rpc.stubs import pipeline_pb2_grpc, pipo_pb2
from pipo.rpc.wire import bearer
from tests.packets import push
from tests.several_hosts import SeveralHosts, signal_to
from tests.stack import journal_of, query, wait_for

# Beyond every time after which a host may take up another's pipeline.
COVERING_S = 12.0
MINUTE_S = 60.0
# A dead host's pipelines have another one by then.
CLAIMED_WITHIN_S = 10.0
# Until the gateway has noticed that a process is frozen: a ping after 10 s, and 10 s for its answer.
FROZEN_ANSWER_S = 30.0
TEXT = """pipo: 1
name: {name}
input: {{ via: http, with: {{ path: /in }} }}
output: {{ from: input, to: file, with: {{ path: ./{name}.jsonl }} }}
delivered: {{ check: ack }}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SeveralHosts]:
    """Not served yet; whatever runs at the end is ended."""
    made = SeveralHosts(tmp_path)
    try:
        yield made
    finally:
        made.kill_all()


def begin(hosts: SeveralHosts, *names: str) -> None:
    for name in names:
        hosts.write(f"{name}.pipo", TEXT.format(name=name))
        hosts.begin(name)


def epoch(hosts: SeveralHosts, name: str) -> int:
    """How many processes have opened the journal for writing."""
    found = query(journal_of(hosts.home, name), "SELECT value FROM meta WHERE key = 'epoch'")
    return int(found[0][0])


def entry(hosts: SeveralHosts, name: str) -> dict[str, Any]:
    found: dict[str, Any] = hosts.get(f"/api/pipelines/{name}")
    return found


def post(hosts: SeveralHosts, name: str) -> tuple[int, dict[str, Any], dict[str, str], float]:
    """Status, answer and headers of a packet over HTTP, and how long it took, seconds."""
    began = time.monotonic()
    status, headers, body = hosts.request(f"/in/{name}/in", b'{"n": 1}', timeout_s=120.0)
    return status, json.loads(body), headers, time.monotonic() - began


def test_starts_are_shared_out_and_stay_where_they_are(hosts: SeveralHosts) -> None:
    hosts.serve("a", "b", checkers=())
    names = ["p1", "p2", "p3", "p4"]
    begin(hosts, *names)
    placed = hosts.placed(*names)
    assert placed == {"p1": "a", "p2": "b", "p3": "a", "p4": "b"}
    assert {name: entry(hosts, name)["host_id"] for name in names} == placed
    # A restart, by a command or after a crash, is where it was, however the loads are.
    hosts.pipo("stop", "p2", "--now")
    hosts.pipo("stop", "p4", "--now")
    assert hosts.request("/api/pipelines/p1/restart", b"{}", timeout_s=120)[0] == 200
    first = hosts.pipeline_pid("p3")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: hosts.pipeline_pid("p3") not in (None, first), what=hosts.output)
    assert hosts.placed(*names) == {"p1": "a", "p2": None, "p3": "a", "p4": None}
    # And the next start goes to the host that has less to do.
    begin(hosts, "p5")
    assert hosts.host_of("p5") == "b"

    # A host that dies alone leaves its pipelines alive: another one has them, and they never stop.
    pids = {name: hosts.pipeline_pid(name) for name in ("p1", "p3")}
    epochs = {name: epoch(hosts, name) for name in pids}
    hosts.runner("a").kill()
    wait_for(lambda: set(hosts.placed(*pids).values()) == {"b"}, what=hosts.output)
    assert {name: hosts.pipeline_pid(name) for name in pids} == pids
    assert {name: epoch(hosts, name) for name in pids} == epochs
    assert entry(hosts, "p1")["host_id"] == "b"
    # What was born elsewhere is restarted and stopped where its claim is held.
    hosts.add_runner("a")
    assert hosts.request("/api/pipelines/p1/restart", b"{}", timeout_s=120)[0] == 200
    assert (hosts.host_of("p1"), hosts.pipeline_pid("p1") != pids["p1"]) == ("b", True)
    stopped = hosts.request("/api/pipelines/p3/stop", b'{"now": true}', timeout_s=120)
    assert stopped[0] == 200, stopped
    wait_for(lambda: entry(hosts, "p3")["state"] == "stopped", what=hosts.output)
    # What was stopped, and what is over, stays so for every host.
    assert hosts.placed("p2", "p3", "p4") == {"p2": None, "p3": None, "p4": None}


def _frozen_host(hosts: SeveralHosts, seconds: float) -> None:
    """A frozen host holds what it holds; starts pass it over, and nobody takes its pipelines."""
    hosts.serve("a", "b", checkers=())
    begin(hosts, "p1", "p2", "p3")
    assert hosts.placed("p1", "p2", "p3") == {"p1": "a", "p2": "b", "p3": "a"}
    pids = {name: hosts.pipeline_pid(name) for name in ("p1", "p2", "p3")}
    hosts.runner("a").freeze()
    until = time.monotonic() + seconds
    hosts.runner("b")
    hosts.pipo("stop", "p2", "--now")
    began = time.monotonic()
    begin(hosts, "p4")
    assert time.monotonic() - began < 30.0
    assert hosts.host_of("p4") == "b"
    refused = hosts.request("/api/pipelines/p1/restart", b"{}", timeout_s=120)
    assert refused[0] == 503
    assert b"runner host 'a' supervises 'p1' and does not answer" in refused[2]
    # One of its processes dies meanwhile, and is missed by nobody who may act.
    third = pids.pop("p3")
    assert third is not None
    os.kill(third, signal.SIGKILL)
    while time.monotonic() < until:
        assert post(hosts, "p1")[0] == 202
        assert hosts.placed("p1", "p3") == {"p1": "a", "p3": "a"}
        time.sleep(0.5)
    hosts.runner("a").thaw()
    wait_for(lambda: hosts.pipeline_pid("p3") not in (None, third), what=hosts.output)
    wait_for(lambda: post(hosts, "p3")[0] == 202, what=hosts.output)
    assert hosts.pipeline_pid("p1") == pids["p1"]
    assert hosts.placed("p1", "p3") == {"p1": "a", "p3": "a"}
    assert {name: epoch(hosts, name) for name in ("p1", "p3")} == {"p1": 1, "p3": 2}


def test_a_frozen_host_keeps_what_it_has_and_gets_nothing_new(hosts: SeveralHosts) -> None:
    _frozen_host(hosts, COVERING_S)


@pytest.mark.soak
def test_a_host_that_is_frozen_for_a_minute(hosts: SeveralHosts) -> None:
    _frozen_host(hosts, MINUTE_S)


def _frozen_pipeline(hosts: SeveralHosts, seconds: float, *, with_host: bool) -> None:
    """A frozen process is never doubled; requests to it end, and say why."""
    hosts.serve("a", "b", checkers=())
    begin(hosts, "p1", "p2")
    host = hosts.host_of("p1")
    assert (host, post(hosts, "p1")[0]) == ("a", 202)
    pid = hosts.freeze_pipeline("p1")
    if with_host:
        hosts.runner("a").freeze()
    began = time.monotonic()
    status, answer, _, took_s = post(hosts, "p1")
    assert (status, took_s < FROZEN_ANSWER_S) == (502, True), (status, answer, took_s)
    assert answer["hint"] == "the packet may have been accepted: look before you send it again"
    status, answer, headers, took_s = post(hosts, "p1")
    assert (status, took_s < FROZEN_ANSWER_S) == (503, True), (status, answer, took_s)
    assert headers["Retry-After"]
    assert answer["error"] == "pipeline 'p1' runs and does not answer"
    # The others are not held up, and the list says which one is.
    looked = time.monotonic()
    listed = {one["name"]: one["state"] for one in hosts.get("/api/pipelines")["pipelines"]}
    assert listed == {"p1": "unreachable", "p2": "running"}
    assert time.monotonic() - looked < 15.0
    assert post(hosts, "p2")[0] == 202
    while time.monotonic() < began + seconds:
        assert hosts.placed("p1", "p2") == {"p1": "a", "p2": "b"}
        time.sleep(0.5)
    assert (hosts.pipeline_pid("p1"), epoch(hosts, "p1")) == (pid, 1)
    signal_to(pid, signal.SIGCONT)
    hosts.runner("a").thaw()
    wait_for(lambda: post(hosts, "p1")[0] == 202, what=hosts.output)
    assert (hosts.pipeline_pid("p1"), epoch(hosts, "p1")) == (pid, 1)
    assert entry(hosts, "p1")["state"] == "running"


def test_a_frozen_pipeline_is_not_doubled_and_its_requests_end(hosts: SeveralHosts) -> None:
    _frozen_pipeline(hosts, COVERING_S, with_host=True)


@pytest.mark.soak
@pytest.mark.parametrize("with_host", [False, True])
def test_a_pipeline_that_is_frozen_for_a_minute(hosts: SeveralHosts, with_host: bool) -> None:
    _frozen_pipeline(hosts, MINUTE_S, with_host=with_host)


def test_a_frozen_pipeline_of_a_dead_host_is_adopted_and_never_ended_by_force(
    hosts: SeveralHosts,
) -> None:
    """Edge 442: unreachable, its entry kept, stop and control refused, until its lease is free."""
    hosts.serve("a", "b", checkers=())
    begin(hosts, "p1")
    pid = hosts.freeze_pipeline("p1")
    hosts.runner("a").kill()
    wait_for(lambda: hosts.host_of("p1") == "b", what=hosts.output)
    wait_for(lambda: entry(hosts, "p1")["state"] == "unreachable", what=hosts.output)
    for word in ("stop", "pause"):
        status, _, body = hosts.request(f"/api/pipelines/p1/{word}", b"{}", timeout_s=120)
        assert status == 503, (word, status, body)
    assert json.loads(body)["hint"]
    assert hosts.pipeline_pid("p1") == pid
    # It dies at last: then it is restarted, once, where it was adopted.
    signal_to(pid, signal.SIGKILL)
    wait_for(lambda: hosts.pipeline_pid("p1") not in (None, pid), what=hosts.output)
    wait_for(lambda: post(hosts, "p1")[0] == 202, what=hosts.output)
    assert (hosts.host_of("p1"), epoch(hosts, "p1")) == ("b", 2)


def test_a_pipeline_that_lost_its_lease_is_fenced_before_it_answers(hosts: SeveralHosts) -> None:
    """Somebody deletes the lease and the claim, so that another process takes the journal over.

    What the journal's own tests show of one commit, here of a whole process and its answers.
    """
    hosts.serve("a", "b", checkers=())
    begin(hosts, "p1")
    kept = push(hosts, "p1", {"n": 0})
    home = Home(hosts.home)
    old = registry.read(home, "p1")
    assert old is not None
    hosts.runner("a").freeze()
    for name in ("lease", "claim"):
        (hosts.home / "pipelines" / "p1" / name).unlink()
    wait_for(lambda: hosts.pipeline_pid("p1") not in (None, old.pid), what=hosts.output)
    wait_for(lambda: post(hosts, "p1")[0] == 202, what=hosts.output)

    async def push_to_the_old_one() -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(old.address) as channel:
            stub = pipeline_pb2_grpc.PipelineStub(channel)
            request = pipo_pb2.PushRequest(pipeline="p1", data=b'{"n": 666}')
            token = bearer(tokens.internal_token(home))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Push(request, metadata=token, timeout=60)
            return refused.value.code()

    assert asyncio.run(push_to_the_old_one()) is grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: not _lives(old.pid), what="the fenced process ends")
    listed = hosts.get("/api/pipelines/p1/packets")["packets"]
    assert len(listed) == 2
    assert kept in {one["packet_id"] for one in listed}
    assert b"666" not in (hosts.workspace / "p1.jsonl").read_bytes()
    hosts.runner("a").thaw()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
