"""What is said of a pipeline that does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.access import Access
from pipo.clock import SystemClock
from pipo.errors import InvalidState, NotFound, PipoError, Unavailable
from pipo.home import Home, desired, room
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.rpc.stubs import pipo_pb2
from tests.mounts import remount, small_disk
from tests.unit.gateway.fake_pipeline import FakePipeline

PUSH = pipo_pb2.PushRequest(pipeline="x", data=b"1")


@pytest.fixture
def lease(home: Home) -> Iterator[Lease]:
    home.pipeline("x").ensure()
    held = Lease.acquire(home.pipeline("x").lease, clock=SystemClock())
    yield held
    held.release()


@pytest.mark.parametrize(
    ("wanted", "kind", "message"),
    [
        (None, InvalidState, "pipeline 'x' is not running"),
        (Desired("stopped", "f", state="stopped"), InvalidState, "pipeline 'x' is not running"),
        (Desired("stopped", "f", state="stopping"), InvalidState, "pipeline 'x' is not running"),
        (Desired("running", "f", state="starting"), Unavailable, "pipeline 'x' is starting"),
        (
            Desired("running", "f", state="backoff"),
            Unavailable,
            "pipeline 'x' is waiting to be started again",
        ),
        (
            Desired("running", "f", state="running"),
            Unavailable,
            "pipeline 'x' is waiting to be started again",
        ),
        (
            Desired("running", "f", state="stopped"),
            InvalidState,
            "pipeline 'x' is not running (suspended)",
        ),
        (
            Desired("running", "f", state="crashed"),
            InvalidState,
            "pipeline 'x' is not running (crashed)",
        ),
        (
            Desired("running", "f", state="completed"),
            InvalidState,
            "pipeline 'x' is not running (completed)",
        ),
    ],
    ids=lambda value: value.state if isinstance(value, Desired) else "",
)
async def test_why_nobody_answers(
    home: Home, access: Access, wanted: Desired | None, kind: type[PipoError], message: str
) -> None:
    home.pipeline("x").ensure()
    if wanted is not None:
        desired.write(home.pipeline("x"), wanted)
    with pytest.raises(kind) as refused:
        await access.push(PUSH)
    assert refused.value.message == message
    assert refused.value.hint
    # Nobody supervises it here, and none that completed goes on by a start alone.
    coming = "waiting" in message or "starting" in message
    assert ("pipo attach x" in refused.value.hint) is coming
    assert ("start of the runner service" in refused.value.hint) is coming
    assert ("goes on with the next engine" in refused.value.hint) is ("suspended" in message)
    assert ("lifetime.until" in refused.value.hint) is ("completed" in message)


async def test_a_process_that_holds_its_lease_and_does_not_answer_is_unreachable(
    home: Home, access: Access, lease: Lease
) -> None:
    desired.write(home.pipeline("x"), Desired("running", "f", state="running"))
    with pytest.raises(Unavailable, match="runs and does not answer"):
        await access.push(PUSH)
    found = await access.get_pipeline("x")
    assert found.state == await access.silent_state("x") == "unreachable"
    (note,) = found.notes
    assert note.startswith(f"its process, pid {os.getpid()} on ")
    assert "does not answer: it is frozen, overloaded or cut off" in note


async def test_one_that_a_full_or_read_only_home_keeps_down_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", size=f"{2 * room.LOW_BYTES}") as root:
        home = Home(root)
        home.ensure()
        desired.write(home.pipeline("x"), Desired("running", "f", state="crashed", error="exit 70"))
        access = Access(home, Config())
        assert list((await access.get_pipeline("x")).notes) == []
        (root / "rest").write_bytes(b"x" * (room.LOW_BYTES + 4096))
        assert access.room_left() < room.LOW_BYTES
        (note,) = (await access.get_pipeline("x")).notes
        assert note == f"the disk of the home {root} has 16.8 MB left: make room on it"
        desired.write(home.pipeline("y"), Desired("running", "f", state="starting"))
        found = await access.get_pipeline("y")
        assert (found.state, list(found.notes)) == ("starting", [note])
        await access.close()
        remount(root, "ro")
        assert room.trouble(home) == (
            f"the file system of the home {root} is read-only: mount it read-write"
        )


async def test_a_process_that_is_gone_and_was_not_missed_yet_waits_for_its_restart(
    home: Home, access: Access
) -> None:
    desired.write(home.pipeline("x"), Desired("running", "f", state="running"))
    found = await access.get_pipeline("x")
    assert found.state == "backoff"
    # No host is there that would start it again: it says who does.
    assert list(found.notes) == [
        "its process is gone: `pipo attach x` brings it up again; "
        "in containers, start the runner service"
    ]


async def test_a_process_that_is_on_its_way_out_is_stopping(
    home: Home, access: Access, lease: Lease
) -> None:
    desired.write(home.pipeline("x"), Desired("stopped", "f", state="stopping"))
    with pytest.raises(Unavailable, match="'x' is stopping") as refused:
        await access.push(PUSH)
    assert refused.value.hint == "once it has stopped: pipo start x"
    assert (await access.get_pipeline("x")).state == "stopping"


async def test_what_has_just_stopped_is_not_asked_once_more(home: Home, access: Access) -> None:
    there = await FakePipeline("x").start(home)
    resume = pipo_pb2.ResumeRequest(pipeline="x")
    assert (await access.resume(resume)).already
    # Within the half second for which the gateway goes by what it knows.
    await there.stop()
    with pytest.raises(InvalidState, match="is not running") as refused:
        await access.resume(resume)
    assert refused.value.hint == "start it with: pipo start x"


async def test_reads_of_a_pipeline_that_never_ran_are_empty(home: Home, access: Access) -> None:
    home.pipeline("x").ensure()
    assert (await access.list_packets(pipo_pb2.ListPacketsRequest(pipeline="x"))).total == 0
    events = await access.list_events(pipo_pb2.ListEventsRequest(pipeline="x", after_seq=7))
    assert (len(events.events), events.last_seq) == (0, 7)
    with pytest.raises(NotFound, match="has no packet"):
        await access.inspect(pipo_pb2.InspectRequest(pipeline="x", packet_id="p"))


async def test_every_operation_refuses_an_unknown_pipeline(access: Access) -> None:
    calls: list[Any] = [
        access.get_pipeline("x"),
        access.start_known(pipo_pb2.StartRequest(target="x")),
        access.stop(pipo_pb2.StopRequest(pipeline="x")),
        access.push(PUSH),
        access.list_packets(pipo_pb2.ListPacketsRequest(pipeline="x")),
        access.inspect(pipo_pb2.InspectRequest(pipeline="x", packet_id="p")),
        access.list_events(pipo_pb2.ListEventsRequest(pipeline="x")),
        anext(access.watch_events(pipo_pb2.ListEventsRequest(pipeline="x"))),
        access.logs(pipo_pb2.LogsRequest(pipeline="x")),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="no pipeline named 'x'"):
            await call
