"""A whole pipeline process that may die at any commit or write, in time that a test moves.

Idea. Each life of the process has an event loop of its own. A death freezes everything that
could leave a trace: from that moment nothing reaches the journal or the destination, and
nobody hears of anything. What is left is closed as a kill leaves it, and the next life begins.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn, TypeVar, cast

import pytest

from pipo import collector
from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import (
    ConnectorError,
    Context,
    Flush,
    Output,
    Step,
    StepCall,
    WriteFailed,
    WriteUnit,
)
from pipo.errors import PipoError
from pipo.home import Home
from pipo.home.config import Config
from pipo.journal.changes import Change
from pipo.journal.outcomes import Outcome
from pipo.journal.sqlite_journal import SqliteJournal
from pipo_runner.pipeline import process as process_module
from pipo_runner.pipeline.definition.versions import read_definition
from pipo_runner.pipeline.life.ends import End, Kind
from pipo_runner.pipeline.process import PipelineProcess
from pipo_runner.spec import ProcessSpec
from tests.unit.runner.pipeline.rig import FakeClock, quiet

T = TypeVar("T")
# How long the process may take to come to where the model is; only a red test waits so long.
PATIENCE_S = 30.0
NAME = "people"
HANGS = ("hangs", "hangs_after")


async def _for_ever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Doom:
    """When a life ends: `before` or `after` its nth commit, or about its nth `write`."""

    kind: Literal["before", "after", "write", "written"]
    nth: int


@dataclass
class Fate:
    """Whether a life goes on. Everything with an effect asks here first."""

    doom: Doom | None = None
    dead: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def decree(self, doom: Doom | None) -> None:
        """Counts from here on."""
        self.doom, self.counts = doom, {}

    def passes(self, kind: str) -> int:
        """The number of this moment; the life may end at it."""
        number = self.counts[kind] = self.counts.get(kind, 0) + 1
        self.ends_at(kind, number)
        return number

    def ends_at(self, kind: str, number: int) -> bool:
        """Whether it is over, now that the numbered moment has come."""
        if self.doom is not None and (self.doom.kind, self.doom.nth) == (kind, number):
            self.dead = True
        return self.dead


class MortalJournal(SqliteJournal):
    """The real one. Once dead it takes nothing and tells nothing."""

    fate: Fate

    async def commit(self, *changes: Change) -> list[Outcome]:
        if self.fate.dead or not changes:
            return await (_for_ever() if self.fate.dead else super().commit())
        number = self.fate.passes("before")
        if self.fate.dead:
            await _for_ever()
        outcomes = await super().commit(*changes)
        if self.fate.ends_at("after", number):
            await _for_ever()
        return outcomes

    def stage(
        self, *changes: Change, done: Callable[[BaseException | None], None] | None = None
    ) -> None:
        number = self._number()
        if number:
            super().stage(*changes, done=None if done is None else self._mortal(number, done))

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None:
        number = self._number()
        if number:
            super().submit(*changes, done=self._mortal(number, done))

    def _number(self) -> int:
        """Of this commit; 0 for one that is not made any more."""
        number = 0 if self.fate.dead else self.fate.passes("before")
        return 0 if self.fate.dead else number

    def _mortal(
        self, number: int, done: Callable[[BaseException | None], None]
    ) -> Callable[[BaseException | None], None]:
        def heard(error: BaseException | None) -> None:
            if not self.fate.ends_at("after", number):
                done(error)

        return heard


class Destination:
    """The real destination behind a script; it outlives the lives of the process.

    `mode`: works; fails, before it writes; fails_after, though it has written; hangs and
    hangs_after likewise, until the mode is another one.
    """

    def __init__(self) -> None:
        self.mode = "works"
        self.fate = Fate()
        self.in_hand: list[str] = []
        """What the write that hangs is about."""
        self.under_way = 0
        """Writes that go on by themselves."""
        self.let_go = asyncio.Event()

    def begin(self, fate: Fate) -> None:
        self.fate, self.in_hand, self.let_go = fate, [], asyncio.Event()
        self.under_way = 0

    def turn(self, mode: str) -> None:
        self.mode = mode
        self.let_go.set()
        self.let_go = asyncio.Event()

    def behind(self, real: Output) -> Output:
        return cast(Output, _Scripted(self, real))


class _Scripted:
    def __init__(self, script: Destination, real: Output) -> None:
        self._script = script
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        self._script.under_way += 1
        try:
            return await self._write(units, atomic=atomic)
        finally:
            self._script.under_way -= 1

    async def _write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        script = self._script
        await self._live("write")
        if script.mode == "hangs":
            await self._hang(units)
        if script.mode == "fails":
            raise WriteFailed("no ink")
        flush = await self._real.write(units, atomic=atomic)
        await self._live("written")
        if script.mode == "hangs_after":
            await self._hang(units)
        if script.mode in ("fails", "fails_after"):
            raise WriteFailed("no answer")
        return flush

    async def _live(self, kind: str) -> None:
        if not self._script.fate.dead:
            self._script.fate.passes(kind)
        if self._script.fate.dead:
            await _for_ever()

    async def _hang(self, units: Sequence[WriteUnit]) -> None:
        script = self._script
        script.in_hand = [unit.id for unit in units]
        script.under_way -= 1
        try:
            await script.let_go.wait()
        finally:
            script.under_way += 1
        script.in_hand = []


class _Breakable:
    """A step that fails while its node is among those that are broken."""

    pure: Literal[True] = True

    def __init__(self, real: Step, broken: Collection[str]) -> None:
        self._real = real
        self._broken = broken

    def run(self, call: StepCall) -> Any:
        if call.node in self._broken:
            raise ConnectorError("it broke")
        return self._real.run(call)


class _Skipping(asyncio.SelectorEventLoop):
    """Its time goes on by itself, and further when the test says so."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


async def _no_server(*words: Any, **keys: Any) -> Any:
    """Nobody dials: the test calls what a server would call."""

    async def stop(grace_s: float) -> None:
        """Nothing runs."""

    return SimpleNamespace(port=1, stop=stop)


class Mortal:
    """One pipeline, life after life. Use: `live`, any of the others, `die` or `end`; `close`."""

    def __init__(self, folder: Path, body: str) -> None:
        self.home = Home(folder / "home")
        self.home.ensure()
        self.home.pipeline(NAME).ensure()
        self.file = folder / f"{NAME}.pipo"
        self.file.write_text(f"pipo: 1\nname: {NAME}\n{body}")
        self._definition = read_definition(self.file, NAME, connectors.manifests())
        self.target = folder / "out.jsonl"
        self.clock = FakeClock()
        self.destination = Destination()
        self.broken: set[str] = set()
        self.fate = Fate()
        self.process: PipelineProcess
        self.journal: MortalJournal
        self._runner: asyncio.Runner | None = None
        self._run: asyncio.Task[int]
        self._patch = pytest.MonkeyPatch()
        real_output, real_step = connectors.build_output, connectors.build_step
        self._patch.setattr(
            connectors,
            "build_output",
            lambda name, context: self.destination.behind(real_output(name, context)),
        )

        def step(role: Literal["tap", "transform"], name: str, context: Context) -> Step:
            return _Breakable(real_step(role, name, context), self.broken)

        self._patch.setattr(connectors, "build_step", step)
        self._patch.setattr(process_module, "serve", _no_server)
        # A test's own garbage is not to be frozen.
        self._patch.setattr(collector, "calm", lambda: None)

    # ── lives ────────────────────────────────────────────────────────────────

    @property
    def alive(self) -> bool:
        return self._runner is not None

    def live(self) -> None:
        """The next life, from what is on disk."""
        self._loop = _Skipping()
        self._runner = asyncio.Runner(loop_factory=lambda: self._loop)
        self.fate = Fate()
        self._runner.run(self._start())

    async def _start(self) -> None:
        self.destination.begin(self.fate)
        opened = MortalJournal.open(
            self.home.pipeline(NAME).folder,
            pipeline=NAME,
            clock=cast(Clock, self.clock),
            synchronous="OFF",
        )
        assert isinstance(opened, MortalJournal)
        self.journal = opened
        self.journal.fate = self.fate
        self.process = PipelineProcess(
            ProcessSpec(
                home=str(self.home.root),
                name=NAME,
                file=str(self.file),
                runner_id="r1",
                bind="127.0.0.1",
                advertise="127.0.0.1",
                restarts=0,
            ),
            home=self.home,
            config=replace(Config(), stop_timeout_s=30.0),
            clock=cast(Clock, self.clock),
            definition=self._definition,
            journal=self.journal,
            internal_token="token",
        )
        await self.process.start()
        self._run = asyncio.create_task(self.process.run_to_end(), name="the run")

    def die(self) -> None:
        """A kill: nothing more has an effect, and nothing is tidied up."""
        self.fate.dead = True
        self._over(self.journal.close(clean=False))

    def end(self, kind: Kind) -> None:
        """An end in order."""

        async def ended() -> None:
            self.process.end(End(kind, "shutdown" if kind == "suspend" else "stop"))
            assert await self._run == 0

        self._over(ended())

    def _over(self, last: Awaitable[None]) -> None:
        assert self._runner is not None

        async def do() -> None:
            await last

        self._runner.run(do())
        # Cancels what is left, and waits for threads that work still.
        self._runner.close()
        self._runner = None

    def close(self) -> None:
        if self.alive:
            self.die()
        self._patch.undo()

    # ── within a life ────────────────────────────────────────────────────────

    def turn(self, mode: str, broken: Collection[str]) -> None:
        """The destination and the nodes behave otherwise from now on."""

        async def turned() -> None:
            self.broken.clear()
            self.broken.update(broken)
            self.destination.turn(mode)

        self.run(turned())

    def run(self, work: Awaitable[T]) -> T:
        assert self._runner is not None

        async def do() -> T:
            return await work

        return self._runner.run(do())

    def ask(self, call: Callable[[], Awaitable[T]]) -> T | PipoError | None:
        """What the process answers or why it refuses; None, when it dies meanwhile."""

        async def asked() -> T | PipoError | None:
            async def answer() -> T:
                return await call()

            task = asyncio.create_task(answer(), name="asking")
            await self._wait_for(lambda: task.done() or self.fate.dead, "no answer")
            if self.fate.dead:
                task.cancel()
                return None
            error = task.exception()
            if error is None:
                return task.result()
            if isinstance(error, PipoError):
                return error
            raise error

        return self.run(asked())

    def jump(self, seconds: float) -> None:
        """Time goes on."""

        async def jumped() -> None:
            self.clock.passed_s += seconds
            self._loop.skipped_s += seconds
            await quiet(10)

        self.run(jumped())

    def settle(self, rows: Callable[[], Awaitable[T]], wanted: T) -> bool:
        """Whether what the journal holds came to be as wanted, and stays; False for a death."""

        async def settled() -> bool:
            found = await rows()
            give_up = time.monotonic() + PATIENCE_S
            while not self.fate.dead:
                self._look_after_run()
                if found == wanted and not self._working():
                    # Everyone has heard of what is on disk, and nothing follows from it.
                    self.fate.decree(None)
                    await self.journal.commit()
                    await quiet(10)
                    if self._working():
                        continue
                    then = await rows()
                    assert then == wanted, f"it did not stay so:\n{_apart(then, wanted)}"
                    return True
                assert time.monotonic() < give_up, f"\n{_apart(found, wanted)}"
                await asyncio.sleep(0.002)
                found = await rows()
            return False

        return self.run(settled())

    def _working(self) -> bool:
        """Whether something goes on that the next turn, or jump in time, must not cut into."""
        return self.destination.under_way > 0 or any(
            task.get_name() in ("clean-up", "ack deadlines") for task in asyncio.all_tasks()
        )

    async def _wait_for(self, condition: Callable[[], bool], failure: str) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not condition():
            self._look_after_run()
            assert time.monotonic() < give_up, failure
            await asyncio.sleep(0.002)

    def _look_after_run(self) -> None:
        if self._run.done():
            raise AssertionError(f"the process ended: {self._run.result()}")

    @property
    def lines(self) -> list[Any]:
        """What stands in the destination."""
        if not self.target.exists():
            return []
        return [json.loads(line) for line in self.target.read_text().splitlines()]


def _apart(found: Any, wanted: Any) -> str:
    """Where the two differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return "\n".join(
            f"{key}: {found.get(key)} instead of {wanted.get(key)}"
            for key in sorted({*found, *wanted})
            if found.get(key) != wanted.get(key)
        )
    return f"{found} instead of {wanted}"
