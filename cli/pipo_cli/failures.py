"""How a failure is shown: one message, one hint, one exit code (edge 378, 379)."""

from __future__ import annotations

import json as jsonlib
from typing import Any

import click

from pipo.errors import CODES, InvalidPipeline, PipoError, Rejected
from pipo_cli.render import findings
from pipo_cli.render.tables import printable

USAGE_EXIT = 2
USAGE_CODE = "usage"


class BrokenFile(InvalidPipeline):
    """A pipeline that fails its check, with the file that its findings stand in."""

    def __init__(self, file: str, error: InvalidPipeline) -> None:
        super().__init__(error.message, findings=error.findings, hint=error.hint)
        self.file = file


def show(error: PipoError, *, json: bool) -> int:
    """Prints the error; the exit code. As JSON it stands on stdout and stderr stays empty."""
    if json:
        _print_json(error.code, error.message, error.hint, _extras(error))
    else:
        for line in error_lines(error):
            click.echo(line, err=True)
    return CODES[error.code].exit


def show_usage(error: click.UsageError, *, json: bool) -> int:
    """Prints a wrong command line; the exit code."""
    path = error.ctx.command_path if error.ctx else "pipo"
    message = error.format_message()
    hint = f"`{path} --help` shows what it takes"
    if json:
        _print_json(USAGE_CODE, message, hint, {})
    else:
        for line in _lines(message, hint):
            click.echo(line, err=True)
    return USAGE_EXIT


def error_lines(error: PipoError) -> list[str]:
    """The findings of a refused file, then `error: …` and its hint."""
    shown = findings.report(error.file, error.findings) if isinstance(error, BrokenFile) else []
    return [*shown, *_lines(error.message, error.hint)]


def _lines(message: str, hint: str) -> list[str]:
    shown = [f"error: {printable(message)}"]
    first, *rest = printable(hint).split("\n")
    if first:
        shown.append(f"  hint: {first}")
    return shown + [f"        {line}" for line in rest]


def _extras(error: PipoError) -> dict[str, Any]:
    if isinstance(error, InvalidPipeline):
        return {"diagnostics": findings.as_json(error.findings)}
    if isinstance(error, Rejected):
        return {"packet_id": error.packet_id}
    return {}


def _print_json(code: str, message: str, hint: str, extras: dict[str, Any]) -> None:
    body = {"ok": False, "error": message, "hint": hint, "code": code, **extras}
    click.echo(jsonlib.dumps(body, ensure_ascii=False))
