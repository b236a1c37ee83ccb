"""A pipeline process that obeys words, one for each run, the last one for ever.

They stand in its file, or beside it in `<file>.words` where the file is a real one.

serve: runs until SIGTERM, then exits 0 and notes `suspended` (SIGUSR1: a stop, SIGUSR2: a restart); refuse: reports an error;
mute: exits 3 without a report; die: serves, then kills itself; hang: reports nothing and
ignores SIGTERM; complete: serves, notes `completed` and exits 0.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipo.clock import SystemClock
from pipo.home import Home, registry
from pipo.home.leases import Lease
from pipo.home.registry import Entry
from pipo_runner.spec import ProcessSpec

ENDINGS: dict[int, str] = {signal.SIGUSR1: "stopped stop", signal.SIGUSR2: "stopped restart"}


def run(spec: ProcessSpec, report: Callable[[dict[str, Any]], None]) -> int:
    home = Home(Path(spec.home))
    word = next_word(Path(spec.file))
    if word == "refuse":
        report({"error": {"code": "unavailable", "message": "no luck", "hint": "try"}})
        return 1
    if word == "broken":
        report({"error": {"code": "bad_request", "message": "bad secret", "hint": ""}})
        return 1
    if word == "mute":
        return 3
    files = home.pipeline(spec.name)
    files.ensure()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
    lease = Lease.acquire(files.lease, clock=SystemClock(), wait_s=1.0)
    if word == "hang":
        while True:
            signal.sigwait([signal.SIGUSR1])
    registry.write(home, entry(spec))
    print(f"hello from {spec.name}")
    report({"ok": True, "address": "127.0.0.1:1", "pid": os.getpid()})
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    ending = "completed" if word == "complete" else "stopped shutdown"
    if word != "complete":
        number = signal.sigwait([signal.SIGTERM, *ENDINGS])
        ending = ENDINGS.get(number, ending)
    (files.folder / "ending").write_text(ending)
    registry.remove(home, spec.name)
    lease.release()
    return 0


def bury(spec: ProcessSpec, report: Callable[[dict[str, Any]], None]) -> int:
    files = Home(Path(spec.home)).pipeline(spec.name)
    (files.folder / "ending").write_text(f"stopped {spec.options['reason']}")
    report({"ok": True})
    return 0


def next_word(file: Path) -> str:
    beside = file.with_name(f"{file.name}.words")
    file = beside if beside.exists() else file
    words = file.read_text().split()
    if len(words) > 1:
        file.write_text(" ".join(words[1:]))
    return words[0]


def entry(spec: ProcessSpec) -> Entry:
    return Entry(
        pipeline=spec.name,
        version=1,
        pid=os.getpid(),
        host=socket.gethostname(),
        address="127.0.0.1:1",
        listen=spec.options.get("listen"),
        ttl=spec.options.get("ttl"),
        state="running",
        status="active",
        started_at=SystemClock().now_ms(),
        runner=spec.runner_id,
        file=spec.file,
        restarts=spec.restarts,
        detached=spec.options.get("detached") is True,
    )
