"""Forking: a process of its own, its report, its exit, and what outlives what."""

import os
import signal
from pathlib import Path
from typing import Any

from pipo.home import Home, leases
from pipo_runner.host.policy import Exit
from pipo_runner.host.spawning import Child, ForkServer
from pipo_runner.host.surroundings import Surroundings


async def spawn(surroundings: Surroundings, word: str, name: str = "p") -> Child:
    file = surroundings.home.root / f"{name}.pipo"
    file.write_text(word)
    return await surroundings.spawn(
        surroundings.request(name, str(file), restarts=2, options={"x": 1})
    )


async def test_a_child_reports_and_tells_its_exit(make: Any) -> None:
    child = await spawn(make(), "serve")
    report = await child.report()
    assert report == {"ok": True, "address": "127.0.0.1:1", "pid": child.pid}
    child.signal(signal.SIGTERM)
    assert await child.exited() == Exit(code=0)
    child.signal(signal.SIGKILL)


async def test_ends_of_every_kind(make: Any) -> None:
    surroundings = make()
    mute = await spawn(surroundings, "mute", "m")
    assert await mute.report() is None
    assert await mute.exited() == Exit(code=3)
    dying = await spawn(surroundings, "die", "d")
    assert (await dying.report() or {})["ok"]
    assert await dying.exited() == Exit(signal=9)
    refusing = await spawn(surroundings, "refuse", "r")
    assert (await refusing.report() or {})["error"]["message"] == "no luck"
    assert await refusing.exited() == Exit(code=1)


async def test_a_child_stands_alone(make: Any, home: Home) -> None:
    child = await spawn(make(environ={"ONLY": "this"}), "serve", "alone")
    await child.report()
    proc = Path(f"/proc/{child.pid}")
    assert os.getsid(child.pid) == child.pid
    assert (proc / "comm").read_text() == "pipo:alone\n"
    open_files = {os.readlink(f) for f in (proc / "fd").iterdir()}
    log = str(home.pipeline("alone").log)
    assert open_files == {"/dev/null", log, str(home.pipeline("alone").lease)}
    assert "hello from alone" in home.pipeline("alone").log.read_text()
    child.signal(signal.SIGTERM)
    await child.exited()


async def test_children_outlive_forkserver_and_host(make: Any, home: Home) -> None:
    server = ForkServer(preload=["tests.unit.runner.host.fake_pipeline"])
    child = await spawn(make(spawn=server.spawn), "serve")
    await child.report()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    again = await spawn(make(spawn=server.spawn), "mute", "other")
    assert await again.exited() == Exit(code=3)
    assert leases.holder(home.pipeline("p").lease) is not None
    child.signal(signal.SIGTERM)
    assert await child.exited() == Exit()
    await server.stop()
    await server.stop()


async def test_a_dead_forkserver_is_replaced(make: Any) -> None:
    server = ForkServer(preload=["tests.unit.runner.host.fake_pipeline"])
    await server.start()
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    child = await spawn(make(spawn=server.spawn), "mute")
    assert await child.exited() == Exit(code=3)
    assert server.pid != first
    await server.stop()


async def test_a_log_that_cannot_be_opened_is_reported(make: Any, home: Home) -> None:
    home.pipeline("p").log.mkdir()
    child = await spawn(make(), "serve")
    report = await child.report()
    assert report is not None
    assert str(home.pipeline("p").log) in report["error"]["message"]
    assert await child.exited() == Exit(code=1)


async def test_an_entry_that_is_not_there_is_a_crash(make: Any, home: Home) -> None:
    child = await spawn(make(entry="nowhere:run"), "serve")
    assert await child.report() is None
    assert await child.exited() == Exit(code=70)
    assert "No module named 'nowhere'" in home.pipeline("p").log.read_text()
