"""The shell around gateway, runner host and checker: what the three do alike, written once.

A service brings one function, `start(shell) -> Running`; the shell brings the
rest: options, the home, the lease and the registry entry, signals, the
supervisor's pipe, the log lines around the end, the exit code.

    @click.command()
    @service_options(http_port=8783)
    def main(home: str | None, id: str | None, http_port: int) -> None:
        run("checker", partial(start, http_port=http_port), home=home, id=id)

The end comes from the first SIGTERM or SIGINT, from end of file on the pipe
whose descriptor stands in PIPO_PARENT_FD (the embedded supervisor died), or from
`shell.fail(error)`. A second signal cuts the stop short. Handlers are set
explicitly, so that it all works as PID 1 too, where defaults do not apply. Whoever
starts a PID 1 may block the two signals until then: what was sent meanwhile counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import click

from pipo import collector
from pipo.clock import Clock, SystemClock
from pipo.errors import BadRequest, PipoError
from pipo.home import Home, home_from, registry
from pipo.home import config as configuration
from pipo.home.leases import Lease
from pipo.telemetry import logs

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PARENT_FD = "PIPO_PARENT_FD"
# What a stop still gets after a second signal.
HURRY_S = 0.5


class Running(Protocol):
    """A service that is ready. The addresses are what others dial; empty where it serves none."""

    @property
    def address(self) -> str: ...

    @property
    def http_address(self) -> str: ...

    async def stop(self) -> None:
        """Ends all work in order. Safe twice.

        Cancelled: what is left is dropped as by a kill.
        """


Start = Callable[["ServiceShell"], Awaitable[Running]]


class ServiceShell:
    """What a service knows of its surroundings, and how it asks for its own end."""

    def __init__(
        self, kind: str, id: str, home: Home, config: configuration.Config, clock: Clock
    ) -> None:
        self.kind = kind
        self.id = id
        self.home = home
        self.config = config
        self.clock = clock
        self.log = logs.logger(kind)
        self.stopping = asyncio.Event()
        """Set once the end has begun; `hurry` after a second signal."""
        self.hurry = asyncio.Event()
        self.reason = ""
        self.error: BaseException | None = None

    def dialable(self, port: int) -> str:
        """What others dial when a server of this service listens on `port`."""
        host = self.config.advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def end(self, reason: str) -> None:
        """Begins the end; asked again, hurries it."""
        if self.stopping.is_set():
            self.hurry.set()
            return
        self.reason = reason
        self.stopping.set()

    def fail(self, error: BaseException) -> None:
        """Begins the end because the service cannot go on; the process exits with 1."""
        if self.error is None:
            self.error = error
        if not self.stopping.is_set():
            self.end("failed")


def service_options(*, http_port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of every service: --home, --id, --http-port.

    Beneath the embedded supervisor the kernel chooses the port, elsewhere it is `http_port`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--http-port",
                type=click.IntRange(0, 65535),
                default=lambda: 0 if PARENT_FD in os.environ else http_port,
                show_default=str(http_port),
                help="The port of /healthz and /metrics; 0 lets the kernel choose.",
            ),
            click.option("--id", help="The name of this instance; the host's name by default."),
            click.option("--home", help="The Pipo home; PIPO_HOME or ~/.pipo by default."),
        ):
            command = option(command)
        return command

    return decorate


def run(
    kind: str,
    start: Start,
    *,
    home: str | None,
    id: str | None,
    stop_timeout_s: float | None = None,
    log_at_home: bool = False,
) -> NoReturn:
    """Runs a service to its end on uvloop, and ends the process with it.

    Whatever the person can mend (a folder without permission, a taken port, a wrong
    key in config.yaml) is one message on the standard error it was started with, and 1.
    Beneath the supervisor, or with `log_at_home`, the log goes to the home, elsewhere to standard
    error.
    """
    import uvloop

    stderr = os.dup(2)
    try:
        where = home_from(home)
        where.ensure()
        name = _instance(id)
        config = configuration.load(where)
        kept = log_at_home or PARENT_FD in os.environ
        file = where.service_logs / f"{kind}-{name}.log" if kept else None
        logs.configure(kind, file=file)
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        _leave(
            runner.run(
                run_service(
                    kind, name, where, config, _calmed(start), stop_timeout_s=stop_timeout_s
                )
            )
        )
    except PipoError as error:
        _refuse(stderr, kind, error.message, error.hint)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _refuse(stderr, kind, f"{place}{error.strerror or error}", "")


def _calmed(start: Start) -> Start:
    """The same start, after which the garbage collector leaves what stays alone."""

    async def started(shell: ServiceShell) -> Running:
        running = await start(shell)
        collector.calm()
        return running

    return started


async def run_service(
    kind: str,
    id: str,
    home: Home,
    config: configuration.Config,
    start: Start,
    *,
    clock: Clock | None = None,
    stop_timeout_s: float | None = None,
) -> int:
    """Runs a service from its lease to its last log line; the exit code.

    `stop_timeout_s` defaults to `engine.stop_timeout`.
    Raises: Conflict, if another process holds this id; whatever `start` raises.
    """
    clock = clock or SystemClock()
    shell = ServiceShell(kind, id, home, config, clock)
    entry = registry.ServiceEntry(
        kind=kind,
        id=id,
        pid=os.getpid(),
        host=socket.gethostname(),
        address="",
        http_address="",
        started_at=clock.now_ms(),
    )
    unwatch = _watch(shell)
    lease: Lease | None = None
    try:
        # The lease comes first, so that no two of one name ever run.
        lease = await asyncio.to_thread(
            Lease.acquire, registry.service_lease(home, kind, id), clock=clock
        )
        # What a killed one left would count as alive from here on, at an address that
        # by now may be somebody else's.
        registry.remove_service_entry(home, kind, id)
        running = await _started(shell, start)
        if running is None:
            return 0
        served = replace(entry, address=running.address, http_address=running.http_address)
        standing = registry.kept_service(
            home, kind, id, lambda: registry.write_service(home, served)
        )
        standing.write()
        shell.log.info(
            "serving", action="serving", id=id, address=served.address, http=served.http_address
        )
        keeping = asyncio.create_task(standing.keep(), name="keep the registry entry")
        try:
            await shell.stopping.wait()
        finally:
            keeping.cancel()
        return await _stopped(shell, entry, running, stop_timeout_s or config.stop_timeout_s)
    finally:
        unwatch()
        if lease is not None:
            _withdraw(shell)
            lease.release()


async def _started(shell: ServiceShell, start: Start) -> Running | None:
    """The service once it is ready; None when the end was asked for before."""
    starting = asyncio.ensure_future(start(shell))
    ending = asyncio.create_task(shell.stopping.wait(), name="end during start")
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            return await starting
        shell.log.info("stopping", action="stopping", reason=shell.reason)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().stop()
        shell.log.info("stopped", action="stopped")
        return None
    finally:
        starting.cancel()
        ending.cancel()


async def _stopped(
    shell: ServiceShell, unserved: registry.ServiceEntry, running: Running, timeout_s: float
) -> int:
    """The shutdown.

    1. The registry entry loses its addresses, so that nobody new dials.
    2. The service stops: within `timeout_s`, or at once after a second signal.
    3. The caller takes the entry away and releases the lease: this process holds nothing more.
    """
    if shell.error is not None:
        shell.log.error(str(shell.error), action="failed", exc_info=shell.error)
    shell.log.info("stopping", action="stopping", reason=shell.reason)
    try:
        registry.write_service(shell.home, unserved)
    except PipoError as error:
        shell.log.warning(error.message, action="registry.write")
    late = not await _within(shell, running, timeout_s)
    shell.log.info("stopped", action="stopped", cut_short=late)
    return 1 if shell.error is not None or (late and not shell.hurry.is_set()) else 0


def _withdraw(shell: ServiceShell) -> None:
    """Removes the entry and, while it is still held, the lease's file."""
    try:
        registry.remove_service(shell.home, shell.kind, shell.id)
    except PipoError as error:
        shell.log.warning(error.message, action="registry.remove")


async def _within(shell: ServiceShell, running: Running, timeout_s: float) -> bool:
    """Whether the service stopped by itself."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            hurried = asyncio.create_task(_hurry(shell, limit), name="second signal")
            try:
                await running.stop()
            finally:
                hurried.cancel()
    except TimeoutError:
        return False
    return True


async def _hurry(shell: ServiceShell, limit: asyncio.Timeout) -> None:
    await shell.hurry.wait()
    limit.reschedule(asyncio.get_running_loop().time() + HURRY_S)


def _watch(shell: ServiceShell) -> Callable[[], None]:
    """Listens for the signals and the supervisor's end; the returned function stops listening."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, shell.end, signal.Signals(number).name)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parent = _parent_fd()
    if parent is not None:
        loop.add_reader(parent, _parent_said, loop, shell, parent)

    def unwatch() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        if parent is not None:
            loop.remove_reader(parent)

    return unwatch


def _parent_said(loop: asyncio.AbstractEventLoop, shell: ServiceShell, fd: int) -> None:
    try:
        if os.read(fd, 4096):
            return
    except BlockingIOError:
        return
    except OSError:
        pass
    loop.remove_reader(fd)
    if not shell.stopping.is_set():
        shell.end("the supervisor is gone")


def _parent_fd() -> int | None:
    """The supervisor's pipe, kept from this process's own children."""
    text = os.environ.pop(PARENT_FD, "")
    if not text:
        return None
    try:
        fd = int(text)
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)
    except (ValueError, OSError):
        raise BadRequest(
            f"{PARENT_FD}={text} is not an open descriptor",
            hint="the supervisor sets it; start this command without it",
        ) from None
    return fd


def _instance(id: str | None) -> str:
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower()) if id is None else id
    if not re.fullmatch(r"[a-z0-9-]{1,64}", name):
        raise BadRequest(
            f"--id {name!r} is not a name", hint="use 1 to 64 of a-z, 0-9 and the hyphen"
        )
    return name


def _refuse(stderr: int, kind: str, message: str, hint: str) -> NoReturn:
    text = f"pipo-{kind}: {message}\n" + (f"  {hint}\n" if hint else "")
    os.write(stderr, text.encode("utf-8", "backslashreplace"))
    _leave(1)


def _leave(code: int) -> NoReturn:
    """Ends the process here and now.

    All that this process owned is closed; threads that still wait for a destination
    that hangs would hold up an ordinary exit for as long as it does.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
