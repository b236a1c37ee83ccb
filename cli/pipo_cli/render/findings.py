"""`pipo check`: findings at their places (edge 404)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pipo.errors import Finding
from pipo_cli.render.tables import one_line, printable


def report(file: str, findings: Sequence[Finding]) -> list[str]:
    """`file:line:col  severity  code  message` and an indented hint; `file  ok` without findings."""
    if not findings:
        return [f"{file}  ok"]
    return [line for f in findings for line in _finding(file, f)]


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


def _finding(file: str, f: Finding) -> list[str]:
    place = f"{file}:{f.line}:{f.col}"
    hint = printable(f.hint).split("\n") if f.hint else []
    return [
        f"{place}  {f.severity}  {f.code}  {one_line(f.message)}",
        *(f"  {line}" for line in hint),
    ]
