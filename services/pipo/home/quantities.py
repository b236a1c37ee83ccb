"""Durations and sizes as people write them in config.yaml."""

from __future__ import annotations

import re

from pipo import durations

_SIZE = re.compile(r"([0-9]+)(B|KiB|MiB|GiB)?")
_BYTES = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def duration_s(text: str) -> float:
    """Seconds of `500ms`, `30s`, `1.5m`, `8h`, `7d`. Raises: ValueError."""
    return durations.parse(text) / 1000.0


def size_bytes(text: str) -> int:
    """Bytes of `4096`, `512KiB`, `16MiB`. Raises: ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size; write 512KiB or 16MiB")
    return int(found[1]) * _BYTES[found[2]]
