"""Edge 40, 427: a port is held from the first moment on, and its holder is named."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict
from pipo.home import Home, leases, ports, registry
from pipo.home.leases import Lease
from pipo.home.ports import PORT_MAX, holder, refuse_taken, reserve
from pipo.home.registry import Entry, ServiceEntry
from tests.stack import free_ports


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.ensure()
    return made


def entry(port: int) -> Entry:
    return Entry(
        pipeline="people",
        version=1,
        pid=7,
        host="here",
        address="127.0.0.1:9",
        listen=port,
        ttl=None,
        state="running",
        status="active",
        started_at=1,
        runner="r",
        file="/w/people.pipo",
        restarts=0,
    )


def test_a_reserved_port_takes_connections_and_is_nobody_elses(home: Home) -> None:
    port = free_ports(1)
    with reserve(port, home) as held:
        assert held.getsockname() == ("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
        with pytest.raises(Conflict) as caught:
            reserve(port, home)
    me = f"pid {os.getpid()} ("
    assert caught.value.message.startswith(f"port {port} on 127.0.0.1 is taken by {me}")
    assert caught.value.hint == f"choose another port: --listen {ports._other(port)}"
    refuse_taken(port, home)


def test_a_pipeline_of_this_home_is_named_while_it_lives(home: Home) -> None:
    port = free_ports(1)
    registry.write(home, entry(port))
    home.pipeline("people").ensure()
    with reserve(port, home):
        lease = Lease.acquire(home.pipeline("people").lease, clock=SystemClock())
        with pytest.raises(Conflict, match="is taken by the pipeline 'people'") as caught:
            refuse_taken(port, home)
        lease.release()
        assert leases.holder(home.pipeline("people").lease) is None
        assert holder(port, home).name.startswith(f"pid {os.getpid()} ")
    assert caught.value.hint.startswith("stop it: pipo stop people, or choose another port")


def test_a_service_of_this_home_is_named(home: Home) -> None:
    port = free_ports(1)
    registry.write_service(home, ServiceEntry("gateway", "g", os.getpid(), "here", "", "", 1))
    lease = Lease.acquire(registry.service_lease(home, "gateway", "g"), clock=SystemClock())
    with reserve(port, home):
        assert holder(port, home).name == f"the gateway of this home (pid {os.getpid()})"
    lease.release()


def test_a_holder_that_nobody_knows(home: Home) -> None:
    assert holder(free_ports(1), None).name == "another program"


def test_another_port_is_a_free_one_near_it(home: Home) -> None:
    """A gateway's gRPC port stands behind its own."""
    port = ports._other(free_ports(1))
    with reserve(port, home):
        other = ports._other(port - 1)
        assert other > port
        reserve(other, home).close()


def test_the_last_port_has_another_before_it() -> None:
    assert PORT_MAX - ports._NEAR < ports._other(PORT_MAX) < PORT_MAX
