"""What the background engine says: lines on its stderr, which is `engine.log` of the home."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Writes a line, or goes without: a full disk ends no engine and none of its services."""
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Nowhere is left to say it.
        return
