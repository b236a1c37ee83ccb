"""What tests ask of programs that an exec step runs: whether they live, and what they noted."""

from __future__ import annotations

from pathlib import Path


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def noted(path: Path, count: int) -> list[int] | None:
    """The pids that programs wrote into a file, a line each, once there are `count`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return [int(line) for line in lines[:count]] if len(lines) >= count else None
