"""What a host does when its engine ends, and when what outlives one is attached."""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import Unavailable
from pipo.home import Home, desired, engine, registry
from pipo.home.engine import Engine
from pipo.home.leases import Lease
from pipo_runner.host.options import Asked
from pipo_runner.host.supervisor import Supervisor


def write(home: Home, name: str) -> None:
    (home.root / f"{name}.pipo").write_text("serve")


@pytest.fixture
def stopping(home: Home) -> Iterator[Engine]:
    lease = Lease.acquire(engine.lease(home), clock=SystemClock())
    made = Engine(os.getpid(), socket.gethostname(), 1, 8787, stopping=True)
    engine.write(home, made)
    yield made
    lease.release()


@pytest.fixture
async def embedded(make: Any) -> AsyncIterator[Supervisor]:
    one = Supervisor(make(runner_id=engine.INSTANCE))
    yield one
    await one.suspend(60.0)


async def test_starts_are_refused_once_the_engine_ends(
    embedded: Supervisor, home: Home, stopping: Engine
) -> None:
    """Edge 445."""
    write(home, "p")
    for begin in (embedded.start, embedded.restart):
        with pytest.raises(Unavailable, match="the engine is stopping") as refused:
            await begin("p")
        assert "pipo start" in refused.value.hint
    assert not home.pipeline("p").folder.exists()


async def test_a_start_that_finds_the_end_with_its_claim_in_hand_leaves_nothing(
    embedded: Supervisor, home: Home, stopping: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge 445: the engine may have looked at the claims just before."""
    write(home, "p")
    monkeypatch.setattr(embedded, "_refuse_while_suspending", lambda: None)
    with pytest.raises(Unavailable, match="the engine is stopping"):
        await embedded.start("p")
    assert not home.pipeline("p").folder.exists()
    assert registry.entries(home) == []


async def test_a_host_of_its_own_does_not_end_with_an_engine(
    make: Any, home: Home, stopping: Engine
) -> None:
    other = Supervisor(make(runner_id="other"))
    write(home, "p")
    assert (await other.start("p")).state == "running"
    await other.suspend(60.0)


async def test_an_attached_pipeline_ends_with_its_host(embedded: Supervisor, home: Home) -> None:
    write(home, "p")
    await embedded.start("p", Asked(detached=True))
    assert engine.going(home).detached == ("p",)
    await embedded.adopt(["other"])
    assert engine.going(home).detached == ("p",)
    await embedded.adopt(["p"])
    assert engine.going(home).attached == ("p",)
    wanted = desired.read(home.pipeline("p"))
    assert wanted is not None
    assert (wanted.state, dict(wanted.options)) == ("running", {})
    await embedded.suspend(60.0)
    assert engine.going(home).attached == ()
