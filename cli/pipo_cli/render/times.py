"""Times and numbers as people read them (edge 395, 397). Wall times are UTC and end in Z."""

from __future__ import annotations

from pipo.clock import iso

NOTHING = "-"

SECOND_MS = 1000
MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S


def stamp(at_ms: int) -> str:
    """`2026-10-10T21:13:48.263Z`."""
    return iso(at_ms)


def time_of_day(at_ms: int) -> str:
    """`21:13:48.263`."""
    return iso(at_ms)[11:23]


def duration(ms: float, *, places: int = 1) -> str:
    """`12ms`, `1.5s` (`places` digits), `1m01s`, `1h02m`, `2d03h`."""
    if round(ms) < SECOND_MS:
        return f"{round(ms)}ms"
    if round(ms / SECOND_MS, places) < MINUTE_S:
        return f"{ms / SECOND_MS:.{places}f}s"
    return uptime(round(ms / SECOND_MS))


def uptime(seconds: int) -> str:
    """`9s`, `12m04s`, `2h10m`, `3d04h`: two units at most."""
    if seconds < MINUTE_S:
        return f"{seconds}s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S}m{seconds % MINUTE_S:02d}s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S}h{seconds % HOUR_S // MINUTE_S:02d}m"
    return f"{seconds // DAY_S}d{seconds % DAY_S // HOUR_S:02d}h"


def age(ms: int) -> str:
    """`5s ago`, `6m ago`, `2h ago`, `3d ago`; a moment in the future is `0s ago`."""
    seconds = max(0, ms) // SECOND_MS
    for unit_s, letter in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if seconds >= unit_s:
            return f"{seconds // unit_s}{letter} ago"
    return f"{seconds}s ago"


def count(number: int) -> str:
    """`1,234`."""
    return f"{number:,}"
