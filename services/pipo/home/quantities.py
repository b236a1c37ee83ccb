"""Durations and sizes as people write them in config.yaml."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"([0-9]+)(B|KiB|MiB|GiB)?")
_BYTES = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def duration_s(text: str) -> float:
    """Seconds of `500ms`, `30s`, `1.5m`, `8h`, `7d`. Raises: ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration; write 500ms, 30s, 5m, 8h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def size_bytes(text: str) -> int:
    """Bytes of `4096`, `512KiB`, `16MiB`. Raises: ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size; write 512KiB or 16MiB")
    return int(found[1]) * _BYTES[found[2]]
