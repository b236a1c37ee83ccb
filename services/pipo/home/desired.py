"""What should run: one small file for each pipeline, which survives everything.

Written by whoever starts, stops or restarts the pipeline (one host at a time:
the one that supervises it). A second copy stands beside it, so that a file that
somebody cut in half is rebuilt instead of forgotten (R38).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipo.errors import PipoError
from pipo.home import atomic, permissions, records
from pipo.home.paths import PipelineHome
from pipo.telemetry.logs import logger

_log = logger("home.desired")
# A pipeline in such a state is not started again by anybody but a person.
ENDED = frozenset({"stopped", "completed", "failed", "crashed"})


@dataclass(frozen=True, slots=True)
class Desired:
    """`state` and `error` are the supervisor's last word: running, backoff, crashed, ...

    `runner` is the host that had it last. `restart_times` are the crash restarts inside the window, milliseconds since the
    epoch, oldest first; they count across hosts.
    """

    desired: Literal["running", "stopped"]
    file: str
    options: Mapping[str, Any] = field(default_factory=dict)
    restart_times: tuple[int, ...] = ()
    state: str = ""
    last_exit: str | None = None
    error: str | None = None
    runner: str = ""

    @property
    def detached(self) -> bool:
        """Whether it was started to outlive the services that brought it up."""
        return self.options.get("detached") is True


def read(pipeline: PipelineHome) -> Desired | None:
    """What is desired; None when nothing was ever said, or nothing that can be read."""
    first = _read(pipeline.desired)
    return first if first is not None else _read(_copy(pipeline))


def write(pipeline: PipelineHome, desired: Desired) -> None:
    """What is desired from now on.

    Durable: on return it survives a power cut.
    Raises: PipoError, if it cannot be written; then what was desired before stands.
    """
    pipeline.ensure()
    content = json.dumps(asdict(desired), indent=2).encode() + b"\n"
    atomic.replace(pipeline.desired, content, durable=True)
    try:
        atomic.replace(_copy(pipeline), content)
    except PipoError as error:
        _log.warning(error.message, action="desired.copy")


def _copy(pipeline: PipelineHome) -> Path:
    return pipeline.folder / "desired.copy.json"


def _read(path: Path) -> Desired | None:
    try:
        return _decoded(records.load(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        why = permissions.explain(path, error, doing="read").message
    except ValueError as error:
        why = str(error)
    _log.warning("desired state skipped", action="desired.skip", file=str(path), reason=why)
    return None


def _decoded(found: Any) -> Desired:
    made = records.decode(Desired, found)
    records.decode(_Said, made.options)
    for at in made.restart_times:
        if at > records.NUMBER_MAX:
            raise ValueError(f"a restart time is {at}")
    return made


@dataclass(frozen=True, slots=True)
class _Said:
    """What a start may have said, by the types that its reader goes by."""

    ttl: str | None = None
    listen: int | None = None
    detached: bool = False
