"""Who holds a port: a pipeline or a service of this home, else whatever the machine tells."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from pipo.home import leases, registry
from pipo.home.paths import Home


@dataclass(frozen=True, slots=True)
class Holder:
    """Who listens on a port, and how a person frees it; `hint` is empty where nobody knows."""

    name: str
    hint: str = ""


def look(port: int, home: Home | None) -> Holder:
    """Who listens there, as exactly as this process may know."""
    pid = listening_pid(port)
    return (_ours(port, pid, home) if home else None) or Holder(program(pid))


def _ours(port: int, pid: int | None, home: Home) -> Holder | None:
    for entry in registry.entries(home):
        alive = leases.holder(home.pipeline(entry.pipeline).lease) is not None
        if alive and entry.listen == port:
            stop = f"stop it: pipo stop {entry.pipeline}"
            return Holder(f"the pipeline {entry.pipeline!r} (pid {entry.pid})", stop)
    for service in registry.services(home):
        if service.pid == pid:
            return Holder(f"the {service.kind} of this home (pid {pid})")
    return None


def listening_pid(port: int) -> int | None:
    """The process that listens on a TCP port; None when there is none, or none that is told."""
    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    # An address is (host, port), or empty.
    pids = [c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1:2] == (port,)]
    return next((pid for pid in pids if pid), None)


def program(pid: int | None) -> str:
    """A process as a person knows it: `pid 77 (nginx)`."""
    if pid is None:
        return "another program"
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"pid {pid}"
