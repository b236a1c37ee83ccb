"""The settings that are more than one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Restart:
    """How a crashed process is started again."""

    backoff_s: float = 1.0
    max_backoff_s: float = 30.0
    stable_s: float = 60.0
    max_restarts: int = 5
    window_s: float = 600.0


@dataclass(frozen=True, slots=True)
class TokenSetting:
    """A bearer token by reference; `pipelines` None means all of them."""

    name: str
    token: str
    scope: Literal["read", "operate", "edit"]
    pipelines: tuple[str, ...] | None = None
