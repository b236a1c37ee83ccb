"""Short ways to check texts in tests."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from pipo.connectors.registry import manifests
from pipo.errors import Finding
from pipo.lang.check import Source, check, parse
from pipo.lang.model import Pipeline

MANIFESTS = manifests()

HEAD = "pipo: 1\nname: tried\n"
PUSH = HEAD + "input: { via: push }\n"
STDOUT = "output: { from: input, to: stdout }\n"


def findings(text: str, file: str = "tried.pipo") -> list[Finding]:
    """All findings of one file's text."""
    return check([Source(dedent(text), file)], MANIFESTS)[0].findings


def found(text: str, file: str = "tried.pipo") -> list[tuple[str, int, int]]:
    """The findings of one file's text as (code, line, column)."""
    return [(f.code, f.line, f.col) for f in findings(text, file)]


def codes(text: str, file: str = "tried.pipo") -> list[str]:
    return [f.code for f in findings(text, file)]


def codes_of_run(texts: Mapping[str, str], **more: Any) -> dict[str, list[str]]:
    """The codes of several files that are checked in one run."""
    sources = [Source(dedent(text), file) for file, text in texts.items()]
    reports = check(sources, MANIFESTS, **more)
    return {report.file: [f.code for f in report.findings] for report in reports}


def model(text: str) -> Pipeline:
    return parse(Source(dedent(text), "tried.pipo"), MANIFESTS)
