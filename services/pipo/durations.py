"""Durations: `250ms`, `1.5h` in, `1m01s` out. All numbers are milliseconds."""

from __future__ import annotations

import math
import re
from typing import Final

PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
LONGEST = "1000000d"
"""The longest duration of a file: with it, a moment of today is still one of a calendar (year 9999)."""
SHORTER: Final = {
    "1ms": r"^0+(\.[0-9]+)?ms$|^0+(\.0+)?(s|m|h|d)$",
    "1s": r"^0*[0-9]{1,3}(\.[0-9]+)?ms$|^0+(\.[0-9]+)?s$|^0+(\.0+)?(m|h|d)$",
}
"""By the least duration: the form of shorter ones, for who can compare texts and no numbers."""
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse(text: str) -> float:
    """How long a text says.

    Units: milliseconds; they may have a fraction.
    Raises: ValueError, for anything but a number and one of `ms s m h d`.
    Source: facts §3.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a duration such as 250ms, 10s, 5m, 1.5h, 7d")
    span_ms = float(found[1]) * _UNITS_MS[found[2]]
    if math.isinf(span_ms):
        raise ValueError(f"{text[:40]!r} is longer than any duration")
    return span_ms


def is_too_long(text: str) -> bool:
    """Whether a text is a duration, and a longer one than a file may hold."""
    found = _DURATION.fullmatch(text)
    return found is not None and float(found[1]) * _UNITS_MS[found[2]] > parse(LONGEST)


def is_shorter(text: str, least: str) -> bool:
    """Whether a text is a duration, and a shorter one than `least`."""
    found = _DURATION.fullmatch(text)
    return found is not None and float(found[1]) * _UNITS_MS[found[2]] < parse(least)


def show(span_ms: float) -> str:
    """A duration for a person: `12ms`, `1.5s`, `1m01s`, `1h02m`; cut, never rounded up.

    Source: edge 397.
    """
    whole_ms = max(0, int(span_ms))
    if whole_ms < 1000:
        return f"{whole_ms}ms"
    if whole_ms < 60_000:
        seconds, tenths = divmod(whole_ms // 100, 10)
        return f"{seconds}.{tenths}s" if tenths else f"{seconds}s"
    if whole_ms < 3_600_000:
        minutes, rest_ms = divmod(whole_ms, 60_000)
        return f"{minutes}m{rest_ms // 1000:02d}s"
    hours, rest_ms = divmod(whole_ms, 3_600_000)
    return f"{hours}h{rest_ms // 60_000:02d}m"
