"""`pipo run` over a fake gateway: start-up, what is printed, and the order of the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import InvalidState, PipoError, Unavailable
from pipo.home import Home, desired
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo_cli import draining, foreground, stack
from pipo_cli.failures import BrokenFile
from pipo_cli.foreground import Foreground
from pipo_cli.gateway import Gateway
from pipo_cli.screen import Screen
from tests.stack import soon
from tests.unit.cli.fakes import http_gateway

LOGGED = "2026-10-10T21:13:48.263Z info  started action=pipeline.start"
RUNS_ALREADY = (409, {"error": "x is already running: pid 7", "code": "invalid_state"})
ELSEWHERE = (409, {"error": "x is supervised by another runner", "code": "conflict"})


class Children:
    """A supervisor whose services do nothing but end when they are told to, or told twice."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.slow = False
        self._end = asyncio.Event()
        self.first_exit: asyncio.Future[tuple[str, int]] = (
            asyncio.get_running_loop().create_future()
        )

    async def run(self) -> None:
        await self._end.wait()

    def stop(self) -> None:
        self.told.append("stop")
        if not self.slow:
            self._end.set()

    def hurry(self) -> None:
        self.told.append("hurry")
        self._end.set()


class Printed(Screen):
    """Keeps what would have been printed."""

    def __init__(self) -> None:
        super().__init__()
        self.outs: list[str] = []
        self.errs: list[str] = []

    def out(self, line: str) -> None:
        self.outs.append(line)

    def err(self, line: str) -> None:
        self.errs.append(line)


class Pipelines:
    """The REST side of a gateway that knows the pipelines `x` and `y`."""

    def __init__(self) -> None:
        self.states = {"x": "stopped", "y": "stopped"}
        self.unread: set[str] = set()
        self.seen: list[tuple[str, str, bytes, str]] = []
        self.start_answer: Callable[[], tuple[int, Any]] = self._start
        self.drains = True
        self.ends_as = "stopped"

    def routes(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "POST /api/pipelines": lambda: self.start_answer(),
            "GET /api/pipelines": lambda: (200, {"pipelines": [self._entry(n) for n in "xy"]}),
        }
        for name in "xy":
            made[f"GET /api/pipelines/{name}"] = lambda n=name: (200, self._entry(n))
            made[f"POST /api/pipelines/{name}/stop"] = lambda n=name: self._stop(n)
        return made

    def asked(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.seen]

    def _start(self) -> tuple[int, Any]:
        name = Path(json.loads(self.seen[-1][2])["file"]).stem
        self.states[name] = "running"
        return 201, self._entry(name)

    def _stop(self, name: str) -> tuple[int, Any]:
        now = json.loads(self.seen[-1][2]).get("now", False)
        self.states[name] = self.ends_as if now or self.drains else "stopping"
        return 200, {"pipeline": name, "state": self.states[name]}

    def _entry(self, name: str) -> dict[str, Any]:
        given = {"name": "input", "via": "http", "address": f"POST /in/{name}/{name}"}
        return {
            "name": name,
            "file": "" if name in self.unread else f"/work/{name}.pipo",
            "error": "the journal cannot be read" if name in self.unread else None,
            "state": self.states[name],
            "stats": {"pending": 3},
            "runner": {"inputs": [given]},
        }


class AnyLife:
    """An engine's life that ends when the test says so."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.over_: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ready(self) -> None:
        self.said.append("ready")

    def stopping(self) -> None:
        self.said.append("stopping")

    async def over(self) -> str:
        return await asyncio.shield(self.over_)


class Run:
    """One `pipo run` in a test."""

    def __init__(self, folder: Path, files: list[str], pipelines: Pipelines) -> None:
        self.home = Home(folder)
        self.home.ensure()
        self.pipelines = pipelines
        self.screen = Printed()
        self.children = Children()
        self.life = AnyLife()
        self.end = foreground._End()
        self.subject = Foreground(
            self.home,
            Config(),
            files,
            self.children,  # type: ignore[arg-type]
            self.life,  # type: ignore[arg-type]
            self.screen,
            self.end,
            SystemClock(),
        )

    def says(self, text: str) -> bool:
        return any(text in line for line in self.screen.errs)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground, "TAIL_EVERY_S", 0.005)
    monkeypatch.setattr(draining, "POLL_S", 0.005)


@pytest.fixture
def pipelines() -> Pipelines:
    return Pipelines()


@pytest.fixture
def url(pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with http_gateway(pipelines.routes(), pipelines.seen) as address:

        async def ready(*_: Any) -> Gateway:
            return Gateway(address)

        monkeypatch.setattr(stack, "ready", ready)
        yield address


@asynccontextmanager
async def running(
    tmp_path: Path, pipelines: Pipelines, *files: str
) -> AsyncIterator[tuple[Run, asyncio.Task[None]]]:
    run = Run(tmp_path / "home", list(files), pipelines)
    task = asyncio.create_task(run.subject.run(), name="run")
    try:
        yield run, task
    finally:
        run.screen.close(1)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def test_it_starts_greets_drains_and_ends(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    async with running(tmp_path, pipelines, "/work/x.pipo", "/work/y.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        assert run.says(f"curl -X POST {url}/in/x/x")
        run.end.ask()
        await task
        assert run.says("draining x, y; Ctrl-C again stops at once")
        assert run.screen.errs[-1] == "stopped"
        assert run.children.told[0] == "stop"
        asked = pipelines.asked()
        assert {"POST /api/pipelines/x/stop", "POST /api/pipelines/y/stop"} <= set(asked)
        starts = [json.loads(body) for _, path, body, _ in pipelines.seen if body[:7] == b'{"file"']
        assert [start["detached"] for start in starts] == [False, False]


async def test_a_drain_is_waited_for(tmp_path: Path, pipelines: Pipelines, url: str) -> None:
    pipelines.drains = False
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        run.end.ask()
        await soon(lambda: pipelines.asked().count("GET /api/pipelines/x") > 3)
        assert not task.done()
        assert run.children.told == []
        pipelines.states["x"] = "stopped"
        await task


async def test_a_pipeline_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path, pipelines: Pipelines, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "SILENCE_S", 0.05)
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        pipelines.ends_as = "unreachable"
        run.end.ask()
        await task
        assert run.says("x: nobody has said anything for 0.05s")


async def test_a_long_drain_tells_a_terminal_what_is_left(
    tmp_path: Path, pipelines: Pipelines, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(Printed, "is_terminal", True)
    pipelines.drains = False
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        run.end.ask()
        await soon(lambda: run.says("x: 3 packet(s) still on their way"))
        pipelines.states["x"] = "stopped"
        await task


async def test_a_second_signal_stops_at_once(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    pipelines.drains = False
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        run.end.ask()
        await soon(lambda: "POST /api/pipelines/x/stop" in pipelines.asked())
        run.children.slow = True
        run.end.ask()
        await task
        bodies = [json.loads(b) for m, p, b, _ in pipelines.seen if p.endswith("/stop")]
        assert bodies == [{}, {"now": True}]
        assert run.children.told == ["stop", "hurry"]


async def test_a_file_that_is_refused_stops_everything(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    refusal = (422, {"error": "does not pass", "code": "invalid_pipeline", "diagnostics": []})
    starts = iter([pipelines._start, lambda: refusal])
    pipelines.start_answer = lambda: next(starts)()  # type: ignore[no-untyped-call]
    async with running(tmp_path, pipelines, "/work/x.pipo", "/work/y.pipo") as (run, task):
        with pytest.raises(BrokenFile, match="does not pass"):
            await task
        assert "POST /api/pipelines/x/stop" in pipelines.asked()
        assert not run.says("Pipo is running")
        assert run.children.told[0] == "stop"


@pytest.mark.parametrize("refusal", [RUNS_ALREADY, ELSEWHERE], ids=lambda r: r[1]["code"])
async def test_a_pipeline_that_was_resumed_first_is_taken_as_started(
    tmp_path: Path, pipelines: Pipelines, url: str, refusal: tuple[int, Any]
) -> None:
    pipelines.states["x"] = "running"
    pipelines.start_answer = lambda: refusal
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        run.end.ask()
        await task
        assert run.says("draining x")


@pytest.mark.parametrize("state", ["starting", "backoff", "unreachable"])
async def test_a_pipeline_that_is_being_resumed_is_waited_for(
    tmp_path: Path, pipelines: Pipelines, url: str, state: str
) -> None:
    pipelines.states["x"] = state
    pipelines.start_answer = lambda: RUNS_ALREADY
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: pipelines.asked().count("GET /api/pipelines") > 1)
        assert not run.says("Pipo is running")
        pipelines.states["x"] = "running"
        await soon(lambda: run.says("Pipo is running"))
        run.end.ask()
        await task


async def test_a_resumed_pipeline_that_fails_in_its_start_refuses_the_run(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    pipelines.states["x"] = "failed"
    pipelines.start_answer = lambda: RUNS_ALREADY
    async with running(tmp_path, pipelines, "/work/x.pipo") as (_, task):
        with pytest.raises(InvalidState, match="already running"):
            await task


async def test_a_resumed_pipeline_whose_journal_cannot_be_read_yet_is_waited_for(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    pipelines.states["x"] = "failed"
    pipelines.unread.add("x")
    pipelines.start_answer = lambda: RUNS_ALREADY
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: pipelines.asked().count("GET /api/pipelines") > 1)
        pipelines.unread.clear()
        pipelines.states["x"] = "running"
        await soon(lambda: run.says("Pipo is running"))
        run.end.ask()
        await task


async def test_a_name_that_another_file_has_is_refused(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    pipelines.states["x"] = "running"
    pipelines.start_answer = lambda: RUNS_ALREADY
    async with running(tmp_path, pipelines, "/elsewhere/x.pipo") as (_, task):
        with pytest.raises(InvalidState, match="already running"):
            await task


async def test_the_end_during_the_start(
    tmp_path: Path, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Gateway:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(stack, "ready", never)
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("starting the gateway"))
        run.end.ask()
        await task
        assert run.screen.errs[-1] == "stopped"


async def test_a_pipeline_that_is_half_started_is_drained_too(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    async with running(tmp_path, pipelines, "/work/x.pipo", "/work/y.pipo") as (run, task):
        loop = asyncio.get_running_loop()

        def starts() -> tuple[int, Any]:
            answer = pipelines._start()
            if pipelines.states["y"] == "running":
                # The end comes before the answer.
                loop.call_soon_threadsafe(run.end.ask)
            return answer

        pipelines.start_answer = starts
        await task
        assert run.says("draining x, y; Ctrl-C again stops at once")
        assert pipelines.states == {"x": "stopped", "y": "stopped"}


async def test_a_stack_that_does_not_come_up(
    tmp_path: Path, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Gateway:
        raise Unavailable("the runner ended with exit code 1 while the stack started")

    monkeypatch.setattr(stack, "ready", fails)
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        with pytest.raises(Unavailable, match="the runner ended"):
            await task
        assert run.children.told[0] == "stop"


@pytest.mark.seed("O041")
@pytest.mark.parametrize(("files", "prefix"), [(["x"], ""), (["x", "y"], "x | ")])
async def test_packets_go_to_stdout_and_log_lines_to_stderr(
    tmp_path: Path, pipelines: Pipelines, url: str, files: list[str], prefix: str
) -> None:
    paths = [f"/work/{name}.pipo" for name in files]
    async with running(tmp_path, pipelines, *paths) as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        # Several take their time, one after the other.
        assert run.says("starting 2 pipelines ...") is (len(files) == 2)
        with run.home.pipeline("x").log.open("a") as log:
            log.write(f'{LOGGED} service=runner pipeline=x\n{{"hello":"world"}}\n')
        await soon(lambda: bool(run.screen.outs))
        assert run.screen.outs == [f'{prefix}{{"hello":"world"}}']
        assert f"x | {LOGGED}" in run.screen.errs
        run.end.ask()
        await task


def test_services_show_what_needs_a_person() -> None:
    screen = Printed()
    for line in (LOGGED, LOGGED.replace("info ", "warn "), "Traceback"):
        foreground._service_said(screen, "gateway", line)
    screen.close(1)
    assert [line.partition(" ")[2][:8] for line in screen.errs] == ["| 2026-1", "| Traceb"]


def test_a_service_is_named_once() -> None:
    screen = Printed()
    warning = LOGGED.replace("info ", "warn ")
    foreground._service_said(screen, "checker", f"{warning} service=checker")
    screen.close(1)
    assert screen.errs == [f"checker | {warning}"]


async def test_a_pipeline_that_cannot_start_leaves_its_neighbours_running(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    """R38: one damaged journal does not keep the others down."""
    start = pipelines.start_answer

    def but_for_x() -> tuple[int, Any]:
        if json.loads(pipelines.seen[-1][2])["file"].endswith("x.pipo"):
            return 503, {
                "error": "journal.db is damaged",
                "hint": "put it back",
                "code": "unavailable",
            }
        return start()

    pipelines.start_answer = but_for_x
    async with running(tmp_path, pipelines, "/work/x.pipo", "/work/y.pipo") as (run, task):
        await soon(lambda: run.says("Pipo is running"))
        assert run.says("/work/x.pipo did not start")
        assert run.says("error: journal.db is damaged")
        assert run.says("  hint: put it back")
        run.end.ask()
        await task
    assert pipelines.states == {"x": "stopped", "y": "stopped"}


async def test_nothing_that_starts_is_a_failed_run(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    damaged = {"error": "journal.db is damaged", "hint": "", "code": "unavailable"}
    pipelines.start_answer = lambda: (503, damaged)
    async with running(tmp_path, pipelines, "/work/x.pipo", "/work/y.pipo") as (_, task):
        with pytest.raises(PipoError, match="damaged"):
            await task


@pytest.mark.parametrize("why", ["asked", "ttl"])
async def test_the_engines_end_drains_what_others_started_too(
    tmp_path: Path, pipelines: Pipelines, url: str, why: str
) -> None:
    """L025: every pipeline that the engine runs, not only those of this `pipo run`."""
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        assert run.life.said == ["ready"]
        run.home.pipeline("y").ensure()
        claim = Lease.acquire(run.home.pipeline("y").claim, clock=SystemClock())
        run.life.over_.set_result(why)
        await soon(lambda: "POST /api/pipelines/y/stop" in pipelines.asked())
        assert run.life.said == ["ready", "stopping"]
        assert run.children.told == []
        claim.release()
        await task
        assert run.says("draining y; Ctrl-C again stops at once")
        assert run.screen.errs[-1] == "stopped"


async def test_detached_pipelines_stay_at_the_engines_end(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    """L026."""
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        await soon(lambda: run.says("Ctrl-C drains"))
        files = run.home.pipeline("y")
        desired.write(files, Desired("running", "/work/y.pipo", {"detached": True}))
        lease = Lease.acquire(files.lease, clock=SystemClock())
        run.life.over_.set_result("asked")
        await task
        lease.release()
        assert not any("/y/stop" in asked for asked in pipelines.asked())


async def test_what_ran_detached_before_runs_on_after_it(
    tmp_path: Path, pipelines: Pipelines, url: str
) -> None:
    pipelines.states["x"] = "running"
    pipelines.start_answer = lambda: (409, {"error": "runs", "code": "invalid_state"})
    async with running(tmp_path, pipelines, "/work/x.pipo") as (run, task):
        wanted = Desired("running", "/work/x.pipo", {"detached": True})
        desired.write(run.home.pipeline("x"), wanted)
        await soon(lambda: run.says("Ctrl-C drains"))
        run.end.ask()
        await task
        assert not any("/x/stop" in asked for asked in pipelines.asked())
