"""Bringing the background engine up: `pipo engine start`, and each command that needs one.

The starter waits on a pipe for one line of JSON: where the gateway is, or why it is not.
The process itself is engine_process.py.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from pipo.clock import Clock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, engine, leases
from pipo.home.config import Config
from pipo_cli.gateway import error_of

# On top of engine.start_timeout: the interpreter's own start, and leftovers that are waited for.
SPARE_S = 30.0
LOOK_EVERY_S = 0.2
LOG = "engine.log"
LOG_BYTES_MAX = 16 * 1024 * 1024


def ensure(home: Home, config: Config, *, answers: Callable[[], bool], clock: Clock) -> str | None:
    """Returns once `answers()`: the address when this call started the engine, else None.

    An engine that somebody else is starting, or that is ending, is waited for.
    Raises: PipoError, as `bring_up`; Unavailable, if the other one neither answers nor goes in time.
    """
    lease = engine.lease(home)
    deadline = clock.monotonic() + config.start_timeout_s + SPARE_S
    pause = threading.Event()
    while True:
        if leases.holder(lease) is None:
            try:
                return bring_up(home, config)
            except Conflict:
                # Somebody was quicker, or a port is taken.
                if leases.holder(lease) is None:
                    raise
        elif clock.monotonic() >= deadline:
            raise _in_the_way(home)
        if answers():
            return None
        pause.wait(LOOK_EVERY_S)


def _in_the_way(home: Home) -> Unavailable:
    """Why another engine of the home has neither answered nor gone."""
    if engine.stopping(home):
        names = ", ".join(engine.going(home).attached)
        return Unavailable(
            f"the engine of {home.root} is stopping, and waits for {names or 'its services'}",
            hint="try again when it has ended; `pipo status` shows what still runs",
        )
    return Unavailable(
        f"the engine of {home.root} runs, but its gateway does not answer",
        hint=f"its log says more: {home.service_logs / LOG}",
    )


def bring_up(home: Home, config: Config) -> str:
    """Starts the engine in the background; the gateway's address once all of it is up.

    Raises: PipoError, as the engine refused; Unavailable, if it says nothing in time.
    """
    home.ensure()
    log = home.service_logs / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    ours, theirs = os.pipe()
    try:
        with open(log, "ab") as output:
            process = subprocess.Popen(
                _command(home, theirs, config),
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
    raise Unavailable("the background engine did not come up", hint=f"its log says more: {log}")


def _command(home: Home, ready_fd: int, config: Config) -> list[str]:
    """What the starter's options and settings decided stands; all else is read anew."""
    words = ["--home", str(home.root), "--ready-fd", str(ready_fd), "--listen", str(config.listen)]
    ttl = [] if config.ttl_s is None else ["--ttl-s", repr(config.ttl_s)]
    return [sys.executable, "-m", "pipo_cli.engine_process", *words, *ttl]


def _heard(fd: int, timeout_s: float) -> dict[str, Any]:
    """The line that the engine says; empty when it ended or took too long."""
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([fd], [], [], timeout_s)
        piece = os.read(fd, 65536) if readable else b""
        if not piece:
            return {}
        text += piece
    found: dict[str, Any] = json.loads(text)
    return found
