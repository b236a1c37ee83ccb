"""`pipo check`: findings at their places (edge 404)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from pipo.errors import Finding
from pipo_cli.render.tables import one_line, printable

_COLOURS = {"error": "red", "warning": "yellow", "ok": "green"}


def report(file: str, findings: Sequence[Finding], *, colour: bool = False) -> list[str]:
    """`file:line:col  severity  code  message` and an indented hint; `file  ok` without findings."""
    file = one_line(file)
    if not findings:
        return [f"{file}  {_painted('ok', colour)}"]
    return [line for f in findings for line in _finding(file, f, colour)]


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The findings as `--json` and REST list them."""
    return [
        {
            "code": f.code,
            "severity": f.severity,
            "message": f.message,
            "hint": f.hint,
            "line": f.line,
            "col": f.col,
            "path": f.path,
        }
        for f in findings
    ]


def from_json(diagnostics: Iterable[Any]) -> list[Finding]:
    """The findings of such a list."""
    return [
        Finding(
            code=str(d["code"]),
            severity=str(d["severity"]),
            message=str(d["message"]),
            hint=str(d["hint"]),
            line=int(d["line"]),
            col=int(d["col"]),
            path=str(d.get("path", "")),
        )
        for d in diagnostics
    ]


def _painted(word: str, colour: bool) -> str:
    return click.style(word, fg=_COLOURS.get(word), bold=True) if colour else word


def _finding(file: str, f: Finding, colour: bool) -> list[str]:
    place = f"{file}:{f.line}:{f.col}"
    hint = printable(f.hint).split("\n") if f.hint else []
    return [
        f"{place}  {_painted(f.severity, colour)}  {f.code}  {one_line(f.message)}",
        *(click.style(f"  {line}", dim=True) if colour else f"  {line}" for line in hint),
    ]
