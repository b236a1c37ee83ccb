"""Which port a start reserves for the http inputs (edge 446)."""

from __future__ import annotations

from typing import Any

from pipo_runner.pipeline.intake.own_port import own_port
from tests.stack import free_ports
from tests.unit.runner.pipeline.rig import pipeline_of

HTTP = """\
input: {{ via: http, with: {{ path: /people{listen} }} }}
output: {{ from: input, to: stdout }}
"""


def reserved(source: str, options: dict[str, Any]) -> int | None:
    found = own_port(pipeline_of(source), options, None)
    if found is None:
        return None
    with found:
        return int(found.getsockname()[1])


def test_the_starts_comes_before_the_files() -> None:
    first, second = free_ports(1), free_ports(1)
    named = HTTP.format(listen=f", listen: {first}")
    assert reserved(named, {}) == first
    assert reserved(named, {"listen": second}) == second
    assert reserved(HTTP.format(listen=""), {"listen": second}) == second
    assert reserved(HTTP.format(listen=""), {}) is None


def test_without_an_http_input_there_is_none() -> None:
    source = "input: { via: push }\noutput: { from: input, to: stdout }\n"
    assert reserved(source, {"listen": free_ports(1)}) is None
