"""`pipo fmt`: pipeline files in their one layout."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pipo.connectors import registry
from pipo.errors import BadRequest, InvalidPipeline, PipoError
from pipo.home import atomic
from pipo.lang.fmt import fmt as laid_out
from pipo.lang.load import BYTES_LIMIT, decode
from pipo_cli.author import pipeline_files, read
from pipo_cli.failures import BrokenFile, error_lines
from pipo_cli.render import findings
from pipo_cli.settings import Settings, global_options, pass_settings

STDIN = "-"
STDIN_NAME = "<stdin>"


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when a file would change.")
@global_options
@pass_settings
def fmt(settings: Settings, paths: tuple[str, ...], check: bool) -> int:
    """Lay pipeline files out, or every one below a folder; `-` is standard input.

    Keys come in the order of the reference, comments move with them, and no text is
    written in another way. Prints the names of the files that changed.
    """
    if STDIN in paths:
        if len(paths) > 1:
            raise click.UsageError("`-` stands alone", click.get_current_context())
        return _stdin(settings, check=check)
    reports: list[dict[str, Any]] = []
    for file in pipeline_files(paths):
        try:
            changed = _file(file, check=check)
        except PipoError as error:
            reports.append(_failed(str(file), error))
            _complain(error, settings)
            continue
        reports.append({"file": str(file), "changed": changed})
        if changed and not settings.json:
            click.echo(str(file))
    return _end(settings, reports, check=check)


def _file(file: Path, *, check: bool) -> bool:
    """Whether the file's layout differs; unless only checked, the file then has it.

    A link stays one, and the file keeps its mode.
    """
    raw = read(file)
    made = _made(raw, str(file))
    if made == raw or check:
        return made != raw
    target = file.resolve()
    if not target.is_file():
        raise BadRequest(f"{file} is no regular file", hint="`pipo fmt -` reads standard input")
    mode = stat.S_IMODE(target.stat().st_mode)
    atomic.replace(target, made, mode=mode)
    target.chmod(mode)  # the umask may have taken from it
    return True


def _stdin(settings: Settings, *, check: bool) -> int:
    """Standard input to standard output."""
    raw = sys.stdin.buffer.read(BYTES_LIMIT + 1)
    try:
        made = _made(raw, STDIN_NAME)
    except PipoError as error:
        _complain(error, settings)
        return _end(settings, [_failed(STDIN_NAME, error)], check=check)
    changed = made != raw
    report: dict[str, Any] = {"file": STDIN_NAME, "changed": changed}
    if not check and settings.json:
        report["text"] = made.decode()
    elif not check:
        sys.stdout.buffer.write(made)
    elif changed and not settings.json:
        click.echo(STDIN_NAME)
    return _end(settings, [report], check=check)


def _made(raw: bytes, name: str) -> bytes:
    """A file's bytes in their layout.

    Raises: BrokenFile, with the findings; Internal.
    """
    try:
        return laid_out(decode(raw), name, registry.manifests()).encode()
    except InvalidPipeline as error:
        refused = InvalidPipeline(
            f"{name} cannot be read, and stays as it is",
            findings=error.findings,
            hint="mend it, then format it again",
        )
        raise BrokenFile(name, refused) from error


def _complain(error: PipoError, settings: Settings) -> None:
    for line in () if settings.json else error_lines(error):
        click.echo(line, err=True)


def _failed(file: str, error: PipoError) -> dict[str, Any]:
    report: dict[str, Any] = {"file": file, "changed": False}
    report |= {"error": error.message, "hint": error.hint, "code": error.code}
    if isinstance(error, InvalidPipeline):
        report["diagnostics"] = findings.as_json(error.findings)
    return report


def _end(settings: Settings, reports: Sequence[dict[str, Any]], *, check: bool) -> int:
    """Prints the JSON answer; the exit code: 1 for a failure, or a check that found a change."""
    ok = not any("error" in report or (check and report["changed"]) for report in reports)
    if settings.json:
        click.echo(json.dumps({"ok": ok, "files": reports}, ensure_ascii=False))
    return 0 if ok else 1
