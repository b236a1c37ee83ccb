"""The ways into a pipeline, as a person uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Way:
    """One way in: an HTTP request where `path` is set, else the kind of its input."""

    via: str
    method: str = ""
    path: str = ""

    def shown(self, url: str = "") -> str:
        """`POST http://127.0.0.1:8787/in/signups/signups`, or `schedule`."""
        return f"{self.method} {url}{self.path}" if self.path else self.via


def ways(pipeline: str, inputs: Iterable[Mapping[str, Any]]) -> Sequence[Way]:
    """Each way in once. An address is `POST /signups`, or several of them with commas."""
    found: dict[Way, None] = {}
    for given in inputs:
        addresses = [a for a in str(given.get("address") or "").split(", ") if a]
        for address in addresses:
            method, _, path = address.partition(" ")
            if not path.startswith("/in/"):
                path = f"/in/{pipeline}{path if path != '/' else ''}"
            found[Way(str(given["via"]), method, path)] = None
        if not addresses:
            found[Way(str(given["via"]))] = None
    return list(found)
