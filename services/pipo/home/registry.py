"""Who runs where: one JSON file for each running pipeline and each service.

An entry says where to dial, its lease says whether it is alive. A clean stop
removes the entry; a crash leaves it, and that is how the two are told apart.
An entry that cannot be read is skipped with a warning, never fatal (R38).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipo.errors import PipoError
from pipo.home import atomic, leases, permissions, records
from pipo.home.paths import NAME, Home
from pipo.home.standing import Standing
from pipo.telemetry.logs import logger

_log = logger("home.registry")
_MAYBE_ABSENT = frozenset({"ttl", "telegram_bot"})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline process, written by itself; `ttl` is there only with an override.

    `listen` is the port that its http input serves itself on, null without one. A `detached`
    one outlives the services that brought it up.
    """

    pipeline: str
    version: int
    pid: int
    host: str
    address: str
    listen: int | None
    ttl: str | None
    state: str
    status: str
    started_at: int
    runner: str
    file: str
    restarts: int
    telegram_bot: str | None = None
    detached: bool = False


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One gateway, runner host or checker; addresses are `host:port`, empty when it has none."""

    kind: str
    id: str
    pid: int
    host: str
    address: str
    http_address: str
    started_at: int


def write(home: Home, entry: Entry) -> None:
    """The entry stands in the registry, whole."""
    content = {k: v for k, v in asdict(entry).items() if v is not None or k not in _MAYBE_ABSENT}
    atomic.replace(_pipeline_file(home, entry.pipeline), _encoded(content))


def kept(home: Home, name: str, entry: Callable[[], Entry]) -> Standing:
    """The file of a pipeline's entry, for the process that holds its lease."""
    path, lease = _pipeline_file(home, name), home.pipeline(name).lease
    return Standing(path, lease, lambda: write(home, entry()))


def read(home: Home, name: str) -> Entry | None:
    """The entry of the pipeline `name`; None when there is none, or none that can be read."""
    return _read(_pipeline_file(home, name), _entry)


def entries(home: Home) -> list[Entry]:
    """Every readable entry, by name."""
    found = (_read(path, _entry) for path in _files(home.run) if NAME.fullmatch(path.stem))
    return [entry for entry in found if entry is not None]


def names(home: Home) -> list[str]:
    """The pipelines that have an entry, readable or not."""
    try:
        found = os.listdir(home.run)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise permissions.explain(home.run, error, doing="read") from error
    stems = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return sorted(stem for stem in stems if NAME.fullmatch(stem))


def remove(home: Home, name: str) -> None:
    """No entry of `name` stands any more."""
    _unlink(_pipeline_file(home, name))


def write_service(home: Home, entry: ServiceEntry) -> None:
    """The service's entry stands in the registry, whole."""
    atomic.replace(_service_file(home, entry.kind, entry.id), _encoded(asdict(entry)))


def kept_service(home: Home, kind: str, id: str, write: Callable[[], None]) -> Standing:
    """The file of a service's entry, for the process that holds its lease and writes it so."""
    return Standing(_service_file(home, kind, id), service_lease(home, kind, id), write)


def services(home: Home, kind: str | None = None) -> list[ServiceEntry]:
    """Every live service, or those of one kind; an entry with a free lease is dead and left out."""
    return [e for e in service_entries(home, kind) if service_lives(home, e)]


def service_entries(home: Home, kind: str | None = None) -> list[ServiceEntry]:
    """The same, dead ones included."""
    found = (_read(path, _service) for path in _files(home.services))
    return [e for e in found if e is not None and kind in (None, e.kind)]


def service_lives(home: Home, entry: ServiceEntry) -> bool:
    """Whether the service holds its lease."""
    return leases.holder(service_lease(home, entry.kind, entry.id)) is not None


def remove_service_entry(home: Home, kind: str, id: str) -> None:
    """No entry of the service stands any more; its lease file does."""
    _unlink(_service_file(home, kind, id))


def remove_service(home: Home, kind: str, id: str) -> None:
    """Neither the service's entry nor its lease file stands any more."""
    remove_service_entry(home, kind, id)
    _unlink(service_lease(home, kind, id))


def service_lease(home: Home, kind: str, id: str) -> Path:
    """Where the service's own lease lies."""
    return home.services / f"{kind}-{id}.lease"


def _pipeline_file(home: Home, name: str) -> Path:
    return home.run / f"{home.pipeline(name).name}.json"


def _service_file(home: Home, kind: str, id: str) -> Path:
    return home.services / f"{kind}-{id}.json"


def _entry(path: Path, found: Any) -> Entry:
    entry = records.decode(Entry, _whole(found))
    if entry.pipeline != path.stem:
        raise ValueError(f"it is an entry of {entry.pipeline!r}")
    return entry


def _service(path: Path, found: Any) -> ServiceEntry:
    return records.decode(ServiceEntry, found)


def _whole(found: Any) -> Any:
    """What is missing is null where it may be."""
    return {"listen": None, "ttl": None, **found} if isinstance(found, dict) else found


def _read(path: Path, decode: Callable[[Path, Any], _T]) -> _T | None:
    try:
        return decode(path, records.load(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        why = permissions.explain(path, error, doing="read").message
    except ValueError as error:
        why = str(error)
    _log.warning("registry file skipped", action="registry.skip", file=str(path), reason=why)
    return None


def _files(folder: Path) -> Iterable[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix == ".json" and p.name[0] != ".")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise permissions.explain(folder, error, doing="read") from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unremoved(path, error) from error


def _unremoved(path: Path, error: OSError) -> PipoError:
    return permissions.explain(path, error, doing="remove")


def _encoded(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
