"""The embedded engine of a home: the supervisor of `pipo start`, `pipo engine start` or `pipo run`.

It holds a lease and keeps one entry among those of the services (kind `engine`), so that a
gateway can tell of it and a command can end it. Containers have none.

It is asked to end by a signal of its own (`ASKED`): SIGTERM suspends, as it does to every
service. The signal goes to the process behind the lease and to no other, since its descriptor
is opened before the lease is looked at once more.

Whoever starts a pipeline takes its claim first and then looks whether the engine is stopping; the
engine says that it stops first and then looks at the claims. So a start is either refused or
seen, and drained (edge 445).
"""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from pipo.errors import Conflict, Forbidden, InvalidState
from pipo.home import atomic, desired, leases, records, registry
from pipo.home.paths import Home, PipelineHome

KIND = "engine"
# The instance name of every service of an embedded stack; there is one such stack in a home.
INSTANCE = "embedded"
ASKED = signal.SIGUSR1


@dataclass(frozen=True, slots=True)
class Engine:
    """One living engine. Times are milliseconds since the epoch; `listen` is its gateway's port."""

    pid: int
    host: str
    started_at: int
    listen: int
    foreground: bool = False
    """Whether it is a `pipo run`."""
    ready: bool = False
    stopping: bool = False
    ttl_expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Going:
    """The pipelines that have a process, or a host that is about to give them one, by name."""

    attached: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()


def lease(home: Home) -> Path:
    """The lease of the home's one engine."""
    return registry.service_lease(home, KIND, INSTANCE)


def write(home: Home, engine: Engine) -> None:
    """The engine's entry stands in the registry, whole; a service's, and what is its alone."""
    base = registry.ServiceEntry(
        kind=KIND,
        id=INSTANCE,
        pid=engine.pid,
        host=engine.host,
        address="",
        http_address="",
        started_at=engine.started_at,
    )
    content = json.dumps(asdict(base) | asdict(engine), indent=2).encode() + b"\n"
    atomic.replace(_file(home), content)


def read(home: Home) -> Engine | None:
    """The engine that is alive; None without one, or while it has said nothing yet."""
    held = leases.holder(lease(home))
    found = None if held is None else _read(_file(home))
    # A killed engine's entry stands until the next one writes its own.
    return found if found is not None and held is not None and held.pid == found.pid else None


def stopping(home: Home) -> bool:
    """Whether the home's engine has begun to end."""
    found = read(home)
    return found is not None and found.stopping


def ask_to_stop(home: Home) -> Engine | None:
    """Asks the engine to drain its pipelines and end; as it was then, None without one.

    Raises: InvalidState, if it runs on another machine or in a container; Forbidden, if it is
        another user's; Conflict, while it does not say yet who it is.
    """
    held = leases.holder(lease(home))
    if held is None:
        return None
    engine = read(home)
    if engine is None:
        raise Conflict(
            f"the engine of {home.root} ({held}) is just starting or ending",
            hint="try again in a moment",
        )
    if engine.host != socket.gethostname():
        raise InvalidState(
            f"the engine of {home.root} runs on {engine.host}",
            hint=f"stop it there, or through its gateway: --url http://{engine.host}:{engine.listen}",
        )
    try:
        process = os.pidfd_open(engine.pid)
    except ProcessLookupError:
        return None
    try:
        held = leases.holder(lease(home))
        if held is None or held.pid != engine.pid:
            return None
        signal.pidfd_send_signal(process, ASKED)
    except ProcessLookupError:
        return None
    except PermissionError as error:
        raise Forbidden(
            f"the engine of {home.root} (pid {engine.pid}) is another user's",
            hint="stop it as that user",
        ) from error
    finally:
        os.close(process)
    return engine


def going(home: Home) -> Going:
    """Which pipelines of the home's engine go; those of other runner hosts are not its own."""
    others = {
        (host.host, host.pid): host.id
        for host in registry.services(home, "runner")
        if host.id != INSTANCE
    }
    found: dict[bool, list[str]] = {True: [], False: []}
    for name in home.pipeline_names():
        pipeline = home.pipeline(name)
        claim = leases.holder(pipeline.claim)
        if claim is None and leases.holder(pipeline.lease) is None:
            continue
        wanted = desired.read(pipeline)
        runner = wanted.runner if wanted is not None else ""
        if claim is not None:
            runner = others.get((claim.host, claim.pid), INSTANCE)
        if runner not in others.values():
            found[wanted is not None and wanted.detached].append(name)
    return Going(tuple(found[False]), tuple(found[True]))


def busy(home: Home) -> bool:
    """Whether a pipeline runs, detached ones included, or is to be started again (edge 448)."""
    for name in home.pipeline_names():
        pipeline = home.pipeline(name)
        if leases.holder(pipeline.lease) or leases.holder(pipeline.claim):
            return True
        wanted = desired.read(pipeline)
        if wanted is not None and wanted.desired == "running" and wanted.state not in desired.ENDED:
            return True
    return False


def living_detached(home: Home) -> tuple[str, ...]:
    """The detached pipelines that have a process, by name."""
    pipelines = (home.pipeline(name) for name in home.pipeline_names())
    return tuple(p.name for p in pipelines if leases.holder(p.lease) is not None and is_detached(p))


def is_detached(pipeline: PipelineHome) -> bool:
    """Whether it was started to outlive the services that brought it up."""
    wanted = desired.read(pipeline)
    return wanted is not None and wanted.detached


def _file(home: Home) -> Path:
    return home.services / f"{KIND}-{INSTANCE}.json"


def _read(path: Path) -> Engine | None:
    try:
        return records.decode(Engine, records.load(path))
    except (OSError, ValueError):
        # Whoever reads it asks again; the engine itself says in its log what it could not write.
        return None
