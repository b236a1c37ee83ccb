"""What a host tells a pipeline process at its birth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """`bind` is what the process listens on, `advertise` the host name that others dial.

    `crash` tells how the run before this one ended, where it crashed: the pipeline's own log says
    it then, which nobody could write at the time.
    """

    home: str
    name: str
    file: str
    runner_id: str
    bind: str
    advertise: str
    restarts: int
    options: Mapping[str, Any] = field(default_factory=dict)
    crash: str | None = None
