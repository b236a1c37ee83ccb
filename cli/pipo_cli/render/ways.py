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
    plain: bool = True
    """Any sender may post JSON to it: it wants no other format, no token and no signature."""

    def shown(self, url: str = "") -> str:
        """`POST http://127.0.0.1:8787/in/signups/signups`, or `schedule`."""
        return f"{self.method} {url}{self.path}" if self.path else self.via


def ways(inputs: Iterable[Mapping[str, Any]]) -> Sequence[Way]:
    """Each way in, in order; an address is such as `POST /in/signups/signups`."""
    found: list[Way] = []
    for given in inputs:
        method, _, path = str(given.get("address") or "").partition(" ")
        plain = given.get("format", "json") == "json" and not given.get("auth")
        found.append(Way(str(given["via"]), method, path, plain))
    return found
