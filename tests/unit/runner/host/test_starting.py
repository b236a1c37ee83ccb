"""What a start says: kept, handed to every process, and for how long (edge 321 to 323, 446, 447)."""

import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from pipo.errors import BadRequest, Conflict, InvalidState, Unavailable
from pipo.home import Home, desired, leases, registry
from pipo.home.registry import Entry
from pipo.home.sent import Sent, file_of, files_of
from pipo_runner.host.options import Asked
from pipo_runner.host.supervisor import Supervisor
from tests.stack import free_ports

ALL = Asked(ttl="2h", listen=8790, detached=True)
KEPT = {"ttl": "2h", "listen": 8790, "detached": True}


def write(home: Home, name: str, words: str = "serve") -> None:
    (home.root / f"{name}.pipo").write_text(words)


def kept(home: Home, name: str = "p") -> dict[str, Any]:
    found = desired.read(home.pipeline(name))
    assert found is not None
    return dict(found.options)


def entry(home: Home, name: str = "p") -> Entry:
    found = registry.read(home, name)
    assert found is not None
    return found


def said(home: Home, name: str = "p") -> dict[str, Any]:
    """What the running process was told."""
    found = entry(home, name)
    named = {"ttl": found.ttl, "listen": found.listen, "detached": found.detached}
    return {key: value for key, value in named.items() if value}


@pytest.fixture
async def supervisor(make: Any) -> AsyncIterator[Supervisor]:
    one = Supervisor(make())
    yield one
    await one.suspend(60.0)
    for each in registry.entries(make().home):
        os.kill(each.pid, signal.SIGKILL)


async def test_options_are_kept_and_survive_a_crash(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p")
    one = await supervisor.start("p", ALL)
    assert (kept(home), said(home)) == (KEPT, KEPT)
    first = entry(home).pid
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: one.state == "running" and entry(home).pid != first)
    assert (kept(home), said(home)) == (KEPT, KEPT)


async def test_a_later_start_keeps_the_port_alone(supervisor: Supervisor, home: Home) -> None:
    write(home, "p")
    await supervisor.start("p", ALL)
    await supervisor.stop("p", now=True)
    await supervisor.start("p")
    assert (kept(home), said(home)) == ({"listen": 8790}, {"listen": 8790})


async def test_the_config_says_what_is_detached(make: Any, home: Home) -> None:
    supervisor = Supervisor(make(config=replace(make().config, detached=True)))
    for name, asked in (("p", Asked()), ("q", Asked(detached=False))):
        write(home, name)
        await supervisor.start(name, asked)
    assert (kept(home, "p"), kept(home, "q")) == ({"detached": True}, {})
    for name in ("p", "q"):
        await supervisor.stop(name, now=True)
    await supervisor.suspend(60.0)


async def test_a_restart_says_anew_what_it_says(supervisor: Supervisor, home: Home) -> None:
    write(home, "p")
    await supervisor.start("p", ALL)
    await supervisor.restart("p")
    plain = {"listen": 8790, "detached": True}
    assert (kept(home), said(home)) == (plain, plain)
    other = free_ports(1)
    await supervisor.restart("p", Asked(ttl="1h", listen=other))
    new = {"ttl": "1h", "listen": other, "detached": True}
    assert (kept(home), said(home)) == (new, new)
    await supervisor.stop("p", now=True)
    # One that is down is started, as it was.
    await supervisor.restart("p", Asked(ttl="3h"))
    assert said(home) == new | {"ttl": "3h"}


async def test_a_restart_that_is_not_answered_changes_nothing(
    supervisor: Supervisor, home: Home, calls: Any
) -> None:
    write(home, "p")
    one = await supervisor.start("p", ALL)
    calls.silent = True
    with pytest.raises(Unavailable):
        await supervisor.restart("p", Asked(ttl="1h"))
    assert (kept(home), one.state) == (KEPT, "running")


async def test_a_restart_on_a_port_that_is_taken_stops_nothing(
    supervisor: Supervisor, home: Home, calls: Any
) -> None:
    write(home, "p")
    await supervisor.start("p", ALL)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is taken by pid"):
            await supervisor.restart("p", Asked(listen=port))
    assert (calls.restarted, kept(home)) == ([], KEPT)


async def test_a_port_wants_an_input_that_serves_it(supervisor: Supervisor, home: Home) -> None:
    write(home, "deaf")
    with pytest.raises(BadRequest, match="deaf has no http input that could listen on port 8790"):
        await supervisor.start("deaf", Asked(listen=8790))
    assert not home.pipeline("deaf").folder.exists()
    await supervisor.start("deaf")
    with pytest.raises(BadRequest, match="no http input"):
        await supervisor.restart("deaf", Asked(listen=8790))


async def test_a_detached_process_outlives_its_host_and_is_adopted(
    make: Any, home: Home, eventually: Any
) -> None:
    """Edge 447: with the same pid, and with what it was told."""
    for name in ("p", "q"):
        write(home, name)
    host = Supervisor(make())
    await host.start("p", ALL)
    await host.start("q")
    pid = entry(home).pid
    assert os.getsid(pid) == pid
    await host.suspend(60.0)
    assert leases.holder(home.pipeline("q").lease) is None
    assert leases.holder(home.pipeline("p").claim) is None
    assert (entry(home).pid, kept(home)) == (pid, KEPT)
    next_host = Supervisor(make(runner_id="next"))
    await next_host.adopt()
    found = {one.name: one for one in next_host.supervised}
    assert (found["p"].runs, found["p"].own, entry(home).pid) == (True, False, pid)
    # A crash under the new host keeps what was said.
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: entry(home).pid != pid and found["p"].state == "running")
    assert said(home) == KEPT
    for name in ("p", "q"):
        await next_host.stop(name, now=True)
    await next_host.suspend(60.0)


async def test_in_a_container_nothing_outlives_the_host(make: Any, home: Home) -> None:
    """There the end of PID 1 is everybody's: what is detached is suspended, and comes back."""
    write(home, "p")
    host = Supervisor(make(outlived=False))
    await host.start("p", ALL)
    await host.suspend(60.0)
    assert leases.holder(home.pipeline("p").lease) is None
    found = desired.read(home.pipeline("p"))
    assert found is not None
    assert (found.desired, found.options) == ("running", KEPT)


async def test_one_that_comes_up_while_its_host_lets_go_is_left_running(
    make: Any, home: Home, eventually: Any
) -> None:
    gate: list[Any] = []
    surroundings = make()
    forkserver_spawn = surroundings.spawn

    async def spawn(request: Any) -> Any:
        child = await forkserver_spawn(request)
        if gate:
            # The host begins its end between the fork and the process's report.
            gate.pop()._suspending = True
        return child

    host = Supervisor(replace(surroundings, spawn=spawn))
    write(home, "p")
    one = await host.start("p", ALL)
    first = entry(home).pid
    gate.append(one)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: leases.holder(home.pipeline("p").claim) is None)
    assert entry(home).pid != first
    assert leases.holder(home.pipeline("p").lease) is not None
    await host.suspend(60.0)
    assert leases.holder(home.pipeline("p").lease) is not None
    os.kill(entry(home).pid, signal.SIGKILL)


async def test_a_start_that_is_being_resolved_when_its_host_ends_is_one_under_way(
    make: Any, home: Home
) -> None:
    """Edge 445: it finishes first, and is suspended with the others."""
    import asyncio
    import threading

    reached, go_on = threading.Event(), threading.Event()
    surroundings = make()

    def resolve(target: Any) -> Any:
        reached.set()
        assert go_on.wait(60)
        return surroundings.resolve(target)

    host = Supervisor(replace(surroundings, resolve=resolve))
    write(home, "p")
    starting = asyncio.create_task(host.start("p"))
    await asyncio.to_thread(reached.wait, 60)
    ending = asyncio.create_task(host.suspend(60.0))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="this runner is stopping"):
        await host.start("p")
    go_on.set()
    assert (await starting).name == "p"
    await ending
    assert leases.holder(home.pipeline("p").lease) is None
    found = desired.read(home.pipeline("p"))
    assert found is not None
    assert found.desired == "running"


# ── texts ────────────────────────────────────────────────────────────────────


async def test_a_text_is_kept_whole_and_started_by_its_name_later(
    supervisor: Supervisor, home: Home
) -> None:
    text = Sent("p", "serve", {"./a.py": "x = 1"})
    await supervisor.start(text, Asked(listen=8790))
    file = file_of(home.pipeline("p"), text)
    assert (entry(home).file, files_of(file)) == (str(file), text.files)
    with pytest.raises(InvalidState, match="already running"):
        await supervisor.start(Sent("p", "serve serve"))
    assert [one.name for one in home.pipeline("p").sent.iterdir()] == [file.parent.name]
    await supervisor.stop("p", now=True)
    await supervisor.start("p")
    assert (entry(home).file, said(home)) == (str(file), {"listen": 8790})


async def test_a_text_that_does_not_start_leaves_the_last_one(
    supervisor: Supervisor, home: Home
) -> None:
    with pytest.raises(Unavailable, match="no luck"):
        await supervisor.start(Sent("p", "refuse"))
    assert not home.pipeline("p").folder.exists()
    await supervisor.start(Sent("p", "serve"))
    first = entry(home).file
    await supervisor.stop("p", now=True)
    with pytest.raises(Unavailable, match="no luck"):
        await supervisor.start(Sent("p", "refuse"))
    assert [str(f) for f in home.pipeline("p").sent.glob("*/*.pipo")] == [first]
    await supervisor.start(Sent("p", "serve serve"))
    assert [str(f) for f in home.pipeline("p").sent.glob("*/*.pipo")] == [entry(home).file]
    await supervisor.stop("p", now=True)
    # A file takes the place of what was sent.
    write(home, "p")
    desired.write(home.pipeline("p"), desired.Desired("stopped", str(home.root / "p.pipo")))
    await supervisor.start("p")
    assert not home.pipeline("p").sent.exists()
