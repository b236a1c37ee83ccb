"""A stack for many tests, each with a pipeline of its own that is killed at a point of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.stack import Stack

# A stack runs something from the first.
IDLE = "pipo: 1\nname: idle\ninput: { via: push }\noutput: { from: input, to: stdout }\n"


def trapped(folder: Path, restart: str) -> Iterator[Stack]:
    """Yields a stack in which `trap` works; `restart` is how its engine restarts what died."""
    _traps(folder).mkdir()
    stack = Stack(
        folder,
        env={"PIPO_CRASH_TRAPS": str(_traps(folder))},
        config=f"engine:\n  restart: {{ {restart} }}\n",
    )
    try:
        yield stack.start(stack.write("idle.pipo", IDLE))
    finally:
        stack.kill_all()


def trap(stack: Stack, name: str, point: str | None) -> Path:
    """Sets a trap for a pipeline, if there is a point; the file is gone once it has sprung."""
    made = _traps(stack.workspace.parent) / f"pipo:{name}@{point}"
    if point is not None:
        made.touch()
    return made


def _traps(folder: Path) -> Path:
    return folder / "traps"
