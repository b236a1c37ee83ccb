"""`pipo run`: the supervisor in the foreground, with the pipelines it was asked to run.

The order of the end, numbered, is in `_shut_down`. What pipelines print (`to: stdout`)
goes to stdout; their log lines, warnings of the services and everything that Pipo says
itself go to stderr.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pipo.clock import Clock
from pipo.errors import Conflict, InvalidPipeline, InvalidState, PipoError
from pipo.home import Home, engine
from pipo.home.config import Config
from pipo_cli import embedded, stack
from pipo_cli.draining import Draining
from pipo_cli.embedded import Supervisor
from pipo_cli.failures import BrokenFile
from pipo_cli.gateway import Gateway
from pipo_cli.life import Life
from pipo_cli.lines import level, worth_showing
from pipo_cli.names import own_name
from pipo_cli.render.tables import printable
from pipo_cli.render.welcome import welcome
from pipo_cli.screen import Screen
from pipo_cli.tail import Tail
from pipo_cli.threads import beside

R = TypeVar("R")

TAIL_EVERY_S = 0.2
START_POLL_S = 0.1
CLOSE_TIMEOUT_S = 2.0
# A process that is coming up holds its lease for a while before it answers.
COMING = frozenset({"starting", "backoff", "unreachable"})
GOING = COMING | {"running", "stopping"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class _End:
    """How often the person asked for the end."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    twice: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        (self.twice if self.asked.is_set() else self.asked).set()


class _Ended(Exception):
    """The end was asked for while something else was awaited."""


async def run(
    home: Home,
    config: Config,
    files: Sequence[str],
    *,
    listen: int | None,
    env_allow: tuple[str, ...],
    clock: Clock,
) -> None:
    """Runs the stack and the pipelines until a signal, then ends both in order.

    A pipeline that cannot start is named, and the others run on.
    Raises: PipoError, if the stack does not start, a file is broken, or no pipeline starts; then
        all is stopped.
    """
    home.ensure()
    config = replace(config, listen=listen or config.listen)
    end = _End()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, end.ask)
    screen = Screen()
    try:
        lease = await stack.claim(home, config, clock)
        life = Life(home, config, clock, foreground=True)
        try:
            life.begin()
            supervisor = Supervisor(
                embedded.services(home),
                environment=stack.environment(os.environ, config, env_allow),
                policy=config.restart,
                stop_timeout_s=config.stop_timeout_s,
                clock=clock,
                say=screen.err,
                heard=lambda kind, line: _service_said(screen, kind, line),
            )
            run_ = Foreground(home, config, files, supervisor, life, screen, end, clock)
            await run_.run()
        finally:
            life.close()
            lease.release()
    finally:
        screen.close(CLOSE_TIMEOUT_S)
        for number in SIGNALS:
            loop.remove_signal_handler(number)


class Foreground:
    """One `pipo run`, from the first child to the last."""

    def __init__(
        self,
        home: Home,
        config: Config,
        files: Sequence[str],
        supervisor: Supervisor,
        life: Life,
        screen: Screen,
        end: _End,
        clock: Clock,
    ) -> None:
        self._home = home
        self._config = config
        self._files = files
        self._supervisor = supervisor
        self._life = life
        self._screen = screen
        self._end = end
        self._clock = clock
        self._gateway: Gateway | None = None
        self._started: list[dict[str, Any]] = []
        self._starting: str | None = None
        self._failed: PipoError | None = None
        self._whole = False
        self._tails: dict[str, Tail] = {}

    async def run(self) -> None:
        """Raises: PipoError, if the start failed; everything is stopped by then."""
        failure: PipoError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                children = group.create_task(self._supervisor.run(), name="supervisor")
                follower = group.create_task(self._follow(), name="logs")
                over = group.create_task(self._until_over(), name="life of the engine")
                try:
                    await self._start_up()
                    await self._end.asked.wait()
                except PipoError as error:
                    failure = error
                except _Ended:
                    self._started += await self._half_started()
                finally:
                    await self._shut_down(children)
                    follower.cancel()
                    over.cancel()
        finally:
            self._print_new()
            for tail in self._tails.values():
                tail.close()
        if failure is not None:
            raise failure
        self._screen.err("stopped")

    async def _start_up(self) -> None:
        self._screen.err("starting the gateway, the runner and the checker ...")
        self._gateway = await self._unless_ended(
            stack.ready(self._home, self._config, self._supervisor, self._clock)
        )
        self._life.ready()
        if len(self._files) > 1:
            self._screen.err(f"starting {len(self._files)} pipelines ...")
        for file in self._files:
            self._starting = file
            try:
                self._started.append(await self._unless_ended(self._named(file)))
            except BrokenFile:
                # The author's to mend before anything runs.
                raise
            except PipoError as error:
                # One damaged journal must not keep its neighbours from their work (R38).
                if len(self._files) == 1:
                    raise
                self._failed = error
                self._screen.err(f"error: {error.message}")
                if error.hint:
                    self._screen.err(f"  hint: {error.hint}")
        self._starting = None
        if self._failed is not None and not self._started:
            raise self._failed
        for line in welcome(
            url=self._gateway.url,
            grpc=f"{self._config.bind}:{self._config.listen + 1}",
            home=str(self._home.root),
            pipelines=self._started,
            pipo=own_name(self._home),
        ):
            self._screen.err(line)

    async def _named(self, file: str) -> dict[str, Any]:
        try:
            return await self._start(file)
        except PipoError:
            self._screen.err(f"{file} did not start")
            raise

    async def _start(self, file: str) -> dict[str, Any]:
        """The started pipeline's entry, or that of the same file when it runs already.

        A pipeline that should run is resumed by the host itself, and may be first.
        """
        path = os.path.join(os.getcwd(), file)
        try:
            # It runs until Ctrl-C, whatever engine.detached says.
            asked = {"file": path, "detached": False}
            entry = await self._call("POST", "/api/pipelines", asked)
        except (Conflict, InvalidState) as refusal:
            entry = await self._resumed(path, refusal)
        except InvalidPipeline as error:
            raise BrokenFile(file, error) from error
        name = str(entry["name"])
        self._tails[name] = Tail(self._home.pipeline(name).log)
        whole = await self._call("GET", f"/api/pipelines/{name}")
        return {**entry, "inputs": (whole.get("runner") or {}).get("inputs") or ()}

    async def _resumed(self, path: str, refusal: PipoError) -> dict[str, Any]:
        """The entry of a pipeline that the host has brought up itself, once it is up.

        One that is not up in time is the host's to go on with.
        Raises: `refusal`, if none of this file is going.
        """
        deadline = self._clock.monotonic() + self._config.start_timeout_s
        while True:
            listed = await self._listed()
            late = self._clock.monotonic() > deadline
            entry = _going(listed, path)
            if entry is not None and (entry.get("state") not in COMING or late):
                return dict(entry)
            # One whose journal could not be read just now is listed with the error alone.
            unread = any(each.get("error") and not each.get("file") for each in listed)
            if entry is None and (late or not unread):
                raise refusal
            await asyncio.sleep(START_POLL_S)

    async def _listed(self) -> Sequence[Mapping[str, Any]]:
        listed = await self._call("GET", "/api/pipelines")
        return listed.get("pipelines") or ()

    async def _half_started(self) -> list[dict[str, Any]]:
        """The pipeline whose start was under way when the end came, if it goes by now.

        Without it that one would only be suspended, and come up again with the next stack.
        """
        if self._gateway is None or self._starting is None:
            return []
        path = os.path.join(os.getcwd(), self._starting)
        try:
            entry = _going(await self._listed(), path)
        except PipoError:
            return []
        return [] if entry is None else [dict(entry)]

    async def _until_over(self) -> None:
        """`pipo engine stop` and the end of the engine's ttl are an end of everything that runs."""
        why = await self._life.over()
        self._whole = True
        words = "asked to stop" if why == "asked" else "the engine's ttl is over"
        self._screen.err(words)
        self._end.asked.set()

    async def _shut_down(self, children: asyncio.Task[None]) -> None:
        """The end.

        1. No start is taken any more.
        2. The pipelines that this run started drain, or stop at once at a second signal; all
           attached ones where the engine is to end. One that ran detached before runs on.
        3. The services get SIGTERM: pipelines of others that they supervise are suspended.
        4. What does not end in time is killed.
        """
        self._life.stopping()
        names = self._to_drain()
        if names and not self._end.twice.is_set():
            self._screen.err(f"draining {', '.join(names)}; Ctrl-C again stops at once")
        if self._gateway is not None:
            draining = Draining(self._gateway, self._end.twice, self._screen, self._clock)
            await (draining.attached(self._home) if self._whole else draining.all(names))
        stack.forget_crashed(self._home)
        self._supervisor.stop()
        hurry = asyncio.create_task(self._end.twice.wait(), name="second signal")
        try:
            await asyncio.wait({children, hurry}, return_when=asyncio.FIRST_COMPLETED)
            if not children.done():
                self._supervisor.hurry()
            await children
        finally:
            hurry.cancel()

    def _to_drain(self) -> list[str]:
        """What this run started, or all that goes where the engine ends; nothing detached."""
        if self._whole:
            return [*engine.going(self._home).attached]
        started = [str(entry["name"]) for entry in self._started]
        return [n for n in started if not engine.is_detached(self._home.pipeline(n))]

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        gateway = self._gateway
        assert gateway is not None
        return await beside(lambda: gateway.call(method, path, body), f"{method} {path}")

    async def _unless_ended(self, work: Awaitable[R]) -> R:
        """What `work` returns. Raises: _Ended, if the end was asked for first."""
        task = asyncio.ensure_future(work)
        ended = asyncio.create_task(self._end.asked.wait(), name="end during start")
        try:
            await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Ended
            return task.result()
        finally:
            task.cancel()
            ended.cancel()

    async def _follow(self) -> None:
        while True:
            self._print_new()
            await asyncio.sleep(TAIL_EVERY_S)

    def _print_new(self) -> None:
        several = len(self._files) > 1
        for name, tail in self._tails.items():
            while self._screen.has_room and (lines := tail.lines()):
                for line in lines:
                    self._show(name, line, several)

    def _show(self, name: str, line: str, several: bool) -> None:
        if level(line) is not None:
            said = line.removesuffix(f" service=runner pipeline={name}")
            self._screen.err(f"{name} | {printable(said)}")
        else:
            self._screen.out(f"{name} | {line}" if several else line)


def _going(listed: Sequence[Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """The entry of a file's pipeline, if it is up or on its way."""
    for entry in listed:
        if entry.get("file") == path and entry.get("state") in GOING:
            return entry
    return None


def _service_said(screen: Screen, kind: str, line: str) -> None:
    """Services log into files of their own; the terminal shows what needs a person.

    Who says it stands before the line, and not at its end again.
    """
    if worth_showing(line):
        screen.err(f"{kind} | {printable(line.removesuffix(f' service={kind}'))}")
