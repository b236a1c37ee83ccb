"""What a host tells a pipeline process at its birth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """`bind` is what the process listens on, `advertise` the host name that others dial."""

    home: str
    name: str
    file: str
    runner_id: str
    bind: str
    advertise: str
    restarts: int
    options: Mapping[str, Any] = field(default_factory=dict)
