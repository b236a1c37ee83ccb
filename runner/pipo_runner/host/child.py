"""The first moments of a pipeline process, between its fork and its own entry."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipo.errors import PipoError
from pipo.home import permissions
from pipo.telemetry import logs
from pipo_runner.spec import ProcessSpec

CRASHED = 70


@dataclass(frozen=True, slots=True)
class Request:
    """One process to fork: `entry` is `module:function`, called with (ProcessSpec, report)."""

    entry: str
    spec: Mapping[str, Any]
    log: str
    environ: Mapping[str, str]


def become(request: Request, report_fd: int) -> NoReturn:
    """Turns this fork into the process that `request` asks for; never returns.

    It is in a session of its own, so neither the terminal nor the end of host or
    forkserver reaches it; it holds no descriptor of theirs but `report_fd`.
    """
    code = CRASHED
    try:
        _detach(report_fd)
        os.environ.clear()
        os.environ.update(request.environ)
        code = _enter(request, _Report(report_fd))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as error:
        # The outermost shell: whatever it was, the host must see a crash.
        with contextlib.suppress(BaseException):
            logs.logger("host.child").error("crashed", action="crash", exc_info=error)
    finally:
        with contextlib.suppress(BaseException):
            logging.shutdown()
        # Not sys.exit: the forkserver's frames and exit handlers are not this process's.
        os._exit(code)


class _Report:
    """Tells the host once, how the start went."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __call__(self, message: dict[str, Any]) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # The host may be gone: that is no reason not to run.
        with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
            pipe.write(json.dumps(message).encode())


def _enter(request: Request, report: _Report) -> int:
    spec = ProcessSpec(**request.spec)
    name_process(spec.name)
    log = Path(request.log)
    try:
        logs.configure("runner", file=log, pipeline=spec.name, stdio=True)
    except OSError as error:
        report({"error": described(permissions.explain(log, error, doing="write"))})
        return 1
    gc.enable()
    module, _, function = request.entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    return int(run(spec, report))


def described(error: PipoError) -> dict[str, Any]:
    """An error as a report carries it."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "findings": [asdict(finding) for finding in getattr(error, "findings", ())],
    }


def _detach(report_fd: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Until the entry sets its own handlers, a signal is a clean end: nothing is begun yet.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    os.umask(0o007)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, report_fd)
    os.closerange(report_fd + 1, descriptor_limit())
    os.set_inheritable(report_fd, False)


def _leave(*_: object) -> NoReturn:
    sys.exit(0)


def descriptor_limit() -> int:
    """One more than the highest open descriptor."""
    return max(map(int, os.listdir("/proc/self/fd"))) + 1


def name_process(name: str) -> None:
    """What `ps -o comm` and `top` call this process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"pipo:{name}"[:15])
