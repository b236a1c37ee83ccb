"""What `pipo run` prints once everything is up: addresses, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pipo_cli.render.ways import Way, ways

SAMPLE = '{"name": "Ada", "email": "ada@example.com"}'
# Any other pipeline may have rules that the sample breaks, or take no JSON.
PLACEHOLDER = '{"your": "data"}'


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
    """Three commands; the sign-ups' first one works as it stands, others take data of yours."""
    name, way = _first_way(pipelines)
    data = shlex.quote(SAMPLE if "signups" in name else PLACEHOLDER)
    if way is None:
        send = f"{pipo} packets {name}"
    elif way.path:
        send = f"curl -X {way.method} {url}{way.path} -H 'content-type: application/json' -d {data}"
    else:
        send = f"{pipo} push {name} --data {data}"
    return [send, f"{pipo} status", f"{pipo} inspect {name} <packet_id>"]


def _listed(url: str, pipelines: Sequence[Mapping[str, Any]]) -> list[str]:
    width = max((len(str(p["name"])) for p in pipelines), default=0)
    lines: list[str] = []
    for pipeline in pipelines:
        into = ", ".join(way.shown(url) for way in _ways(pipeline))
        label = "  pipelines" if not lines else "           "
        lines.append(f"{label}  {pipeline['name']!s:<{width}}  {into}".rstrip())
    return lines


def _first_way(pipelines: Sequence[Mapping[str, Any]]) -> tuple[str, Way | None]:
    """The first pipeline that anybody can send JSON to, one of sign-ups before the others."""
    for pipeline in sorted(pipelines, key=lambda p: "signups" not in str(p["name"])):
        for way in _ways(pipeline):
            if way.plain and (way.via == "push" or (way.path and way.method != "GET")):
                return str(pipeline["name"]), way
    return str(pipelines[0]["name"]) if pipelines else "NAME", None


def _ways(pipeline: Mapping[str, Any]) -> Sequence[Way]:
    return ways(pipeline.get("inputs") or ())
