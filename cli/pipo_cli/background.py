"""The background stack: what `pipo start` brings up when no gateway answers.

The starter waits on a pipe for one line of JSON: where the gateway is, or why it is
not. The stack then runs in a session of its own until it is signalled, or has had
nothing to do for `engine.idle`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from pipo.clock import Clock, SystemClock
from pipo.errors import Conflict, PipoError, Unavailable
from pipo.home import Home, home_from, leases
from pipo.home import config as configuration
from pipo.home.config import Config
from pipo_cli import embedded, stack
from pipo_cli.embedded import Supervisor
from pipo_cli.gateway import error_of
from pipo_cli.lines import worth_showing

# On top of engine.start_timeout: the interpreter's own start, and leftovers that are waited for.
SPARE_S = 30.0
IDLE_LOOK_S = 10.0
LOOK_EVERY_S = 0.2
LOG = "stack.log"
LOG_BYTES_MAX = 16 * 1024 * 1024


def ensure(home: Home, config: Config, *, answers: Callable[[], bool], clock: Clock) -> str | None:
    """Returns once `answers()`: the address when this call started the stack, else None.

    A stack that somebody else is starting is waited for.
    Raises: PipoError, as `bring_up`; Unavailable, if the other stack does not answer in time.
    """
    lease = home.services / stack.LEASE
    deadline = clock.monotonic() + config.start_timeout_s + SPARE_S
    pause = threading.Event()
    while True:
        if leases.holder(lease) is None:
            try:
                return bring_up(home, config)
            except Conflict:
                # Somebody was quicker, or the port is taken.
                if leases.holder(lease) is None:
                    raise
        elif clock.monotonic() >= deadline:
            raise Unavailable(
                f"the stack of {home.root} runs, but its gateway does not answer",
                hint=f"its log says more: {home.service_logs / LOG}",
            )
        if answers():
            return None
        pause.wait(LOOK_EVERY_S)


def bring_up(home: Home, config: Config) -> str:
    """Starts the stack in the background; the gateway's address once all of it is up.

    Raises: PipoError, as the stack refused; Unavailable, if it says nothing in time.
    """
    home.ensure()
    log = home.service_logs / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    ours, theirs = os.pipe()
    try:
        with open(log, "ab") as output:
            process = subprocess.Popen(
                _command(home, theirs),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        theirs = -1
        said = _heard(ours, config.start_timeout_s + SPARE_S)
        # It runs on without us; from here on it is nobody's child to wait for.
        process.returncode = 0
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    if "url" in said:
        return str(said["url"])
    if "error" in said:
        raise error_of(500, said)
    raise Unavailable("the background stack did not come up", hint=f"its log says more: {log}")


async def serve(home: Home, config: Config, ready_fd: int, clock: Clock) -> None:
    """Runs the stack until a signal or until it was idle long enough.

    Raises: PipoError, if it does not come up; the starter has been told.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    starter = _Starter(ready_fd)
    try:
        lease = await stack.claim(home, config, clock)
        try:
            await _supervise(home, config, starter, ended, clock)
        finally:
            lease.release()
    except PipoError as error:
        starter.tell({"error": error.message, "hint": error.hint, "code": error.code})
        raise
    finally:
        starter.close()


async def _supervise(
    home: Home, config: Config, starter: _Starter, ended: asyncio.Event, clock: Clock
) -> None:
    failure: PipoError | None = None
    supervisor = Supervisor(
        embedded.services(home),
        environment=stack.environment(os.environ, config),
        policy=config.restart,
        stop_timeout_s=config.stop_timeout_s,
        clock=clock,
        say=_log,
        heard=_service_said,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run(), name="supervisor")
        try:
            gateway = await stack.ready(home, config, supervisor, clock)
            starter.tell({"url": gateway.url})
            starter.close()
            await _until_idle(home, config, ended, clock)
        except PipoError as error:
            failure = error
        finally:
            supervisor.stop()
    if failure is not None:
        raise failure


async def _until_idle(home: Home, config: Config, ended: asyncio.Event, clock: Clock) -> None:
    """Returns at the first signal, or once no pipeline ran for `engine.idle`."""
    busy_at = clock.monotonic()
    while not ended.is_set():
        if stack.busy(home):
            busy_at = clock.monotonic()
        elif clock.monotonic() - busy_at >= config.idle_s:
            _log(f"nothing to do for {config.idle_s:g}s (engine.idle); stopping")
            return
        try:
            async with asyncio.timeout(min(IDLE_LOOK_S, config.idle_s)):
                await ended.wait()
        except TimeoutError:
            continue


class _Starter:
    """The `pipo start` that waits for word of us."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def tell(self, words: dict[str, Any]) -> None:
        if self._fd >= 0:
            try:
                os.write(self._fd, json.dumps(words).encode() + b"\n")
            except OSError:
                _log("the command that started this stack is gone")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def main() -> int:
    """The process behind `bring_up`."""
    parser = argparse.ArgumentParser(prog="pipo_cli.background", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--ready-fd", required=True, type=int)
    given = parser.parse_args()
    home = home_from(given.home)
    try:
        home.ensure()
        config = configuration.load(home)
        asyncio.run(serve(home, config, given.ready_fd, SystemClock()))
    except PipoError as error:
        _log(f"error: {error.message}")
        return 1
    return 0


def _command(home: Home, ready_fd: int) -> list[str]:
    words = ["--home", str(home.root), "--ready-fd", str(ready_fd)]
    return [sys.executable, "-m", "pipo_cli.background", *words]


def _heard(fd: int, timeout_s: float) -> dict[str, Any]:
    """The line that the stack says; empty when it ended or took too long."""
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([fd], [], [], timeout_s)
        piece = os.read(fd, 65536) if readable else b""
        if not piece:
            return {}
        text += piece
    found: dict[str, Any] = json.loads(text)
    return found


def _service_said(kind: str, line: str) -> None:
    if worth_showing(line):
        _log(f"{kind} | {line}")


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
