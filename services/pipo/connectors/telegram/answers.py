"""What the Bot API answers to any method. Pure.

Source: core.telegram.org/bots/api, "Making requests" and ResponseParameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipo import payload
from pipo.connectors.http.failures import excerpt
from pipo.connectors.http.sending import Answer
from pipo.connectors.http.statuses import pause_asked_s

WRONG_TOKEN = frozenset({401, 404})
_WHY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Result:
    """The method did what it was asked."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not; `why` is masked, and `pause_s` what it asks to wait."""

    status: int
    why: str
    pause_s: float | None = None

    @property
    def hint(self) -> str:
        return "check the bot's token" if self.status in WRONG_TOKEN else ""


def read(answer: Answer, *, mask: Callable[[str], str], now_ms: int) -> Result | Failed:
    """The result of a method, or why there is none."""
    try:
        told = payload.decode(answer.body)
    except payload.BadPayload:
        told = None
    if not isinstance(told, dict):
        return Failed(answer.status, excerpt(answer, mask))
    if told.get("ok") is True:
        return Result(told.get("result"))
    why = mask(str(told.get("description") or "no reason given"))[:_WHY_CHARACTERS]
    pause_s = _pause_s(told) or pause_asked_s(answer.status, answer.headers, now_ms)
    return Failed(answer.status, why, pause_s)


def _pause_s(told: dict[str, Any]) -> float | None:
    parameters = told.get("parameters")
    asked = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or asked < 0:
        return None
    return float(min(asked, 1e9))
