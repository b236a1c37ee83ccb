"""The background engine as a process: brought up by background.py, it runs until one of four ends.

asked, ttl   every attached pipeline drains, then the services end (L025)
idle         it had nothing to do for `engine.idle` (edge 448)
signalled    the services end now, and suspend what runs; the next engine resumes it
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Literal

from pipo.clock import Clock, SystemClock, iso
from pipo.errors import PipoError
from pipo.home import Home, engine, home_from
from pipo.home import config as configuration
from pipo.home.config import Config
from pipo_cli import embedded, stack
from pipo_cli.draining import Draining
from pipo_cli.embedded import Supervisor
from pipo_cli.engine_log import say
from pipo_cli.gateway import Gateway
from pipo_cli.life import Life, Over
from pipo_cli.lines import worth_showing
from pipo_cli.threads import beside

IDLE_LOOK_S = 10.0

End = Literal["signalled", "idle"] | Over


async def serve(home: Home, config: Config, ready_fd: int, clock: Clock) -> None:
    """Runs the engine until one of its ends.

    Raises: PipoError, if it does not come up; the starter has been told.
    """
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    starter = _Starter(ready_fd)
    try:
        lease = await stack.claim(home, config, clock)
        life = Life(home, config, clock, foreground=False)
        try:
            life.begin()
            await _supervise(home, config, starter, life, signalled, clock)
        finally:
            life.close()
            lease.release()
    except PipoError as error:
        starter.tell({"error": error.message, "hint": error.hint, "code": error.code})
        raise
    finally:
        starter.close()


async def _supervise(
    home: Home,
    config: Config,
    starter: _Starter,
    life: Life,
    signalled: asyncio.Event,
    clock: Clock,
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
            life.ready()
            starter.tell({"url": gateway.url})
            starter.close()
            await _until_over(home, config, life, gateway, signalled, clock)
        except PipoError as error:
            failure = error
        finally:
            supervisor.stop()
    if failure is not None:
        raise failure


async def _until_over(
    home: Home,
    config: Config,
    life: Life,
    gateway: Gateway,
    signalled: asyncio.Event,
    clock: Clock,
) -> None:
    """Returns when the services are to end; what is to drain has drained.

    1. No start is taken any more. 2. Attached pipelines drain, also what was just starting; a
    signal cuts that short. 3. Entries of crashed pipelines go.
    """
    end = await _first_end(home, config, life, gateway, signalled, clock)
    _log(_WHY[end].format(idle_s=config.idle_s, ttl_s=config.ttl_s))
    # One that sleeps has said so, and looked once more since.
    if end != "idle":
        life.stopping()
    if end == "signalled":
        return
    if end != "idle":
        draining = Draining(gateway, asyncio.Event(), _Log(), clock)
        await _unless(signalled, draining.attached(home))
    stack.forget_crashed(home)


async def _first_end(
    home: Home,
    config: Config,
    life: Life,
    gateway: Gateway,
    signalled: asyncio.Event,
    clock: Clock,
) -> End:
    over = asyncio.create_task(life.over(), name="life of the engine")
    idle = asyncio.create_task(_idle(home, config, life, gateway, clock), name="idle")
    signal_ = asyncio.create_task(signalled.wait(), name="signal to the engine")
    try:
        await asyncio.wait({over, idle, signal_}, return_when=asyncio.FIRST_COMPLETED)
        if signal_.done():
            return "signalled"
        if over.done():
            return over.result()
        idle.result()
        return "idle"
    finally:
        for task in (over, idle, signal_):
            task.cancel()


async def _idle(home: Home, config: Config, life: Life, gateway: Gateway, clock: Clock) -> None:
    """Returns once no pipeline ran and nobody asked anything for `engine.idle` (edge 436)."""
    busy_at = clock.monotonic()
    while True:
        now = clock.monotonic()
        if engine.busy(home):
            busy_at = now
        elif now - busy_at >= config.idle_s:
            quiet_s = await beside(lambda: stack.quiet_s(gateway), "look at the gateway")
            if quiet_s is None or quiet_s >= config.idle_s:
                life.stopping()
                if not engine.busy(home):
                    return
                # A start was quicker.
                life.going_on()
            busy_at = now - (quiet_s or 0.0)
        await asyncio.sleep(min(IDLE_LOOK_S, config.idle_s))


async def _unless(signalled: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Returns when `work` is done, or at the signal, which ends it."""
    task = asyncio.create_task(work, name="drain")
    signal_ = asyncio.create_task(signalled.wait(), name="signal during the drain")
    try:
        await asyncio.wait({task, signal_}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()
        signal_.cancel()


_WHY: dict[End, str] = {
    "asked": "asked to stop; the pipelines drain",
    "ttl": "the engine's ttl of {ttl_s:g}s is over; the pipelines drain",
    "idle": "nothing to do for {idle_s:g}s (engine.idle); stopping",
    "signalled": "signalled; what runs is suspended",
}


class _Log:
    """Where the drain says what it meets."""

    is_terminal = False

    def err(self, line: str) -> None:
        _log(line)


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
    parser = argparse.ArgumentParser(prog="pipo_cli.engine_process", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--ready-fd", required=True, type=int)
    parser.add_argument("--listen", required=True, type=int)
    parser.add_argument("--ttl-s", type=float)
    given = parser.parse_args()
    home = home_from(given.home)
    try:
        home.ensure()
        config = replace(configuration.load(home), listen=given.listen, ttl_s=given.ttl_s)
        asyncio.run(serve(home, config, given.ready_fd, SystemClock()))
    except PipoError as error:
        _log(f"error: {error.message}")
        return 1
    return 0


def _service_said(kind: str, line: str) -> None:
    if worth_showing(line):
        say(f"{kind} | {line}")


def _log(line: str) -> None:
    say(f"{iso(SystemClock().now_ms())} {line}")


if __name__ == "__main__":
    sys.exit(main())
