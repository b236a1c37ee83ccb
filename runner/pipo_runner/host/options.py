"""What a start says beside its target, and how long each word of it holds. Pure.

Kept under `options` in desired.json and given to the process at every birth, so that crash
restarts, other hosts and adoptions go by them too (edge 323, 446, 447):

    ttl        this start only: any later start or restart without one is back at the file's (L023)
    listen     until another one is given, across starts and restarts (edge 446)
    detached   this start: a later one says it anew, or `engine.detached` does; a restart keeps it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one start or restart asks for; None where it says nothing.

    `ttl` is a duration as text, `listen` a port; both were judged at the door.
    """

    ttl: str | None = None
    listen: int | None = None
    detached: bool | None = None


NOTHING = Asked()


def of_start(asked: Asked, kept: Options, *, detached: bool, has_port: bool) -> Options:
    """The options of a start; `kept` are the last ones, `detached` is what counts unsaid.

    A port is kept only where an input serves it (`has_port`).
    """
    return _options(asked, kept, has_port, detached if asked.detached is None else asked.detached)


def of_restart(asked: Asked, kept: Options, *, has_port: bool) -> Options:
    """The options of a restart, which keeps what the pipeline outlives."""
    return _options(asked, kept, has_port, kept.get("detached") is True)


def _options(asked: Asked, kept: Options, has_port: bool, detached: bool) -> Options:
    made: dict[str, Any] = {}
    if asked.ttl is not None:
        made["ttl"] = asked.ttl
    listen = asked.listen or kept.get("listen")
    if listen and has_port:
        made["listen"] = listen
    if detached:
        made["detached"] = True
    return made
