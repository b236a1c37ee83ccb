"""The supervisor of the embedded stack: gateway, runner host and checker as children.

It keeps the three alive with the pipelines' backoff and imports neither grpc nor
aiohttp. Each child holds the reading end of a pipe whose writing end is only here:
when this process dies, however it dies, the children see end of file and suspend.
Every child has a session of its own, so that a Ctrl-C at the terminal reaches the
supervisor alone, and the order of the end is its to choose. What children print is
read here at once and always, so that a terminal that stands still stops no service.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipo.clock import Clock
from pipo.home import Home
from pipo.home.engine import INSTANCE
from pipo.home.settings import Restart
from pipo_cli.lines import Lines, level
from pipo_cli.restarts import Restarts

# A service gets engine.stop_timeout for its stop; this comes on top before it is killed.
KILL_GRACE_S = 3.0
LAST_WORDS_S = 1.0
# A refusal is a message and a hint.
LAST_LINES = 2
READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of child and the command that runs it."""

    kind: str
    command: tuple[str, ...]


def services(home: Home) -> tuple[Service, ...]:
    """The three services of a stack, run by this interpreter."""
    modules = {
        "gateway": "pipo_gateway.main",
        "runner": "pipo_runner.host.main",
        "checker": "pipo_checker.main",
    }
    tail = ("--home", str(home.root), "--id", INSTANCE)
    return tuple(
        Service(kind, (sys.executable, "-m", module, *tail)) for kind, module in modules.items()
    )


class Supervisor:
    """Runs services until `stop`.

    `say` gets a line for each that ended on its own, `heard` each line that one prints.
    Neither may block.
    """

    def __init__(
        self,
        wanted: Sequence[Service],
        *,
        environment: Mapping[str, str],
        policy: Restart,
        stop_timeout_s: float,
        clock: Clock,
        say: Callable[[str], None],
        heard: Callable[[str, str], None],
    ) -> None:
        self._wanted = wanted
        self._environment = environment
        self._policy = policy
        self._stop_timeout_s = stop_timeout_s
        self._clock = clock
        self._say = say
        self._heard = heard
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._words: dict[str, deque[str]] = {s.kind: deque(maxlen=LAST_LINES) for s in wanted}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self.first_exit: asyncio.Future[tuple[str, int]] = (
            asyncio.get_running_loop().create_future()
        )
        """Kind and exit code of the first service that ended without being asked."""

    async def run(self) -> None:
        """Returns once `stop` was called and every child is gone.

        Cancelled: the children are killed.
        """
        async with asyncio.TaskGroup() as group:
            for service in self._wanted:
                group.create_task(self._keep(service), name=f"service {service.kind}")

    def stop(self) -> None:
        """Asks every child to end. Safe twice."""
        self._stopping.set()

    def hurry(self) -> None:
        """Ends every child at once; what is in flight stays in the journals."""
        self._stopping.set()
        self._hurry.set()

    def last_words(self, kind: str) -> str:
        """What a service printed last that is no log line: why it refused to run."""
        return " ".join(line.strip() for line in self._words[kind])

    def pids(self) -> dict[str, int]:
        """The children that run now."""
        return {kind: process.pid for kind, process in self._running.items()}

    async def _keep(self, service: Service) -> None:
        restarts = Restarts(self._policy)
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._run_once(service)
            if self._stopping.is_set():
                return
            if not self.first_exit.done():
                self.first_exit.set_result((service.kind, code))
            ran_s = self._clock.monotonic() - began
            wait_s, restarts = restarts.after(ran_s, self._clock.jitter(1.0))
            self._say(f"the {service.kind} {how(code)}; it starts again in {wait_s:.1f}s")
            await _set_within(self._stopping, wait_s)

    async def _run_once(self, service: Service) -> int:
        """Runs the service to its end, or to ours; its exit code."""
        parent_end, child_end = _pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *service.command,
                env={**self._environment, "PIPO_PARENT_FD": str(child_end)},
                pass_fds=(child_end,),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            os.close(child_end)
            child_end = -1
            self._running[service.kind] = process
            listening = asyncio.create_task(
                self._listen(service.kind, process), name=f"output of the {service.kind}"
            )
            try:
                return await self._ended(process)
            finally:
                del self._running[service.kind]
                # What it said last stands in the pipe; a grandchild may hold the pipe open.
                await asyncio.wait({listening}, timeout=LAST_WORDS_S)
                listening.cancel()
        finally:
            os.close(parent_end)
            if child_end >= 0:
                os.close(child_end)

    async def _listen(self, kind: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        lines = Lines()
        while piece := await process.stdout.read(READ_BYTES):
            self._take(kind, lines.feed(piece))
        self._take(kind, lines.rest())

    def _take(self, kind: str, lines: list[str]) -> None:
        for line in lines:
            if level(line) is None:
                self._words[kind].append(line)
            self._heard(kind, line)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """The exit code. Asked to stop: SIGTERM, then SIGKILL when it takes too long."""
        gone = asyncio.create_task(process.wait(), name=f"wait for {process.pid}")
        asked = asyncio.create_task(self._stopping.wait(), name=f"stop of {process.pid}")
        try:
            await asyncio.wait({gone, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                _signal(process, signal.SIGTERM)
                await self._until_late(gone)
            if not gone.done() and self._hurry.is_set():
                # A service cuts its stop short at a second signal.
                _signal(process, signal.SIGTERM)
                await asyncio.wait({gone}, timeout=KILL_GRACE_S)
            if not gone.done():
                _signal(process, signal.SIGKILL)
            return await gone
        except asyncio.CancelledError:
            _signal(process, signal.SIGKILL)
            raise
        finally:
            asked.cancel()
            gone.cancel()

    async def _until_late(self, gone: asyncio.Task[int]) -> None:
        hurry = asyncio.create_task(self._hurry.wait(), name="hurry")
        try:
            await asyncio.wait(
                {gone, hurry},
                timeout=self._stop_timeout_s + KILL_GRACE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            hurry.cancel()


def how(code: int) -> str:
    """`ended with exit code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _pipe() -> tuple[int, int]:
    """Our writing end, and the end that a child reads."""
    child_end, parent_end = os.pipe()
    return parent_end, child_end


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return


async def _set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
