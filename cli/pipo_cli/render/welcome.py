"""What `pipo run` prints once everything is up: addresses, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

SAMPLE = '{"name": "Ada", "email": "ada@example.com"}'


def welcome(
    *, url: str, grpc: str, home: str, pipelines: Sequence[Mapping[str, Any]], pipo: str
) -> list[str]:
    """The whole greeting; `pipo` is how the reader calls this program."""
    return [
        "Pipo is running.",
        f"  gateway    {url}  (gRPC {grpc})",
        f"  home       {home}",
        *_listed(url, pipelines),
        "",
        "Try next, in another terminal:",
        *(f"  {line}" for line in to_try(url, pipelines, pipo)),
        "",
        "Ctrl-C drains and stops everything; a second one stops at once.",
    ]


def to_try(url: str, pipelines: Sequence[Mapping[str, Any]], pipo: str) -> list[str]:
    """Three commands that work as they stand, but for the id of a packet."""
    name, call = _first_http(pipelines)
    if call:
        method, path = call
        send = (
            f"curl -X {method} {url}{path} -H 'content-type: application/json'"
            f" -d {shlex.quote(SAMPLE)}"
        )
    else:
        name = str(pipelines[0]["name"]) if pipelines else "NAME"
        send = f"{pipo} packets {name}"
    return [send, f"{pipo} status", f"{pipo} inspect {name} <packet_id>"]


def _listed(url: str, pipelines: Sequence[Mapping[str, Any]]) -> list[str]:
    width = max((len(str(p["name"])) for p in pipelines), default=0)
    lines: list[str] = []
    for pipeline in pipelines:
        ways = [_way(url, given) for given in pipeline.get("inputs") or ()]
        label = "  pipelines" if not lines else "           "
        lines.append(f"{label}  {pipeline['name']!s:<{width}}  {', '.join(ways)}".rstrip())
    return lines


def _way(url: str, given: Mapping[str, Any]) -> str:
    call = _http_call(given)
    return f"{call[0]} {url}{call[1]}" if call else str(given.get("address") or given.get("via"))


def _first_http(pipelines: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[str, str] | None]:
    """The first pipeline that a POST reaches, a file called sign-ups before the others."""
    for pipeline in sorted(pipelines, key=lambda p: "signup" not in str(p["name"])):
        for given in pipeline.get("inputs") or ():
            call = _http_call(given)
            if call and call[0] != "GET":
                return str(pipeline["name"]), call
    return "", None


def _http_call(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Method and path of an address such as `POST /in/signups/signups`."""
    method, _, path = str(given.get("address") or "").partition(" ")
    return (method, path) if path.startswith("/") else None
