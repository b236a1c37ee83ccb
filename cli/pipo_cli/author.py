"""Commands for whoever writes a pipeline: `check` and `schema`."""

from __future__ import annotations

import io
import json
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pipo.connectors import registry
from pipo.errors import BadRequest, Finding, NotFound
from pipo.lang.check import Source
from pipo.lang.check import check as check_together
from pipo.lang.editor_schema import editor_schema
from pipo.lang.load import BYTES_LIMIT
from pipo_cli.missing import no_such
from pipo_cli.render import findings
from pipo_cli.settings import Settings, global_options, pass_settings, plain

SUFFIX = ".pipo"
SKIPPED_FOLDERS = {"node_modules", "__pycache__"}
PIPE_WAIT_S = 10.0


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@global_options
@pass_settings
def check(settings: Settings, paths: tuple[str, ...]) -> int:
    """Check pipeline files, or every one below a folder (default: this one)."""
    files = pipeline_files(paths or (".",))
    reports = [(file, _ordered(found)) for file, found in _checked(files, settings)]
    ok = not any(f.severity == "error" for _, found in reports for f in found)
    if settings.json:
        listed = [{"file": file, "diagnostics": findings.as_json(f)} for file, f in reports]
        click.echo(json.dumps({"ok": ok, "files": listed}, ensure_ascii=False))
    else:
        colour = sys.stdout.isatty() and not plain()
        for file, found in reports:
            for line in findings.report(file, found, colour=colour):
                click.echo(line)
    return 0 if ok else 1


@click.command()
@global_options
def schema() -> int:
    """Print the JSON Schema of pipeline files, for editors."""
    click.echo(json.dumps(editor_schema(registry.manifests()), indent=2, ensure_ascii=False))
    return 0


def pipeline_files(paths: Sequence[str]) -> list[Path]:
    """The files that paths name, folders searched to the bottom, in order.

    Each file stands once, by the first of its names: a second one, a link for
    example, would make it the other pipeline that takes its port.
    Raises: NotFound, for a path that is not there or a folder without pipelines;
        BadRequest, for one that cannot be looked at.
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        try:
            named = _files_of(path)
        except OSError as error:
            raise BadRequest(f"cannot read {path}: {error.strerror}") from error
        for file in named:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.rglob(f"*{SUFFIX}") if _wanted(p, path))
        if not inside:
            raise NotFound(f"no pipeline below {path}", hint=f"a pipeline's file ends in {SUFFIX}")
        return inside
    if not path.exists():
        raise no_such(path, "file or folder")
    return [path]


def _wanted(path: Path, root: Path) -> bool:
    folders = path.relative_to(root).parts[:-1]
    hidden = any(part.startswith(".") or part in SKIPPED_FOLDERS for part in folders)
    return path.is_file() and not hidden


def _checked(files: Sequence[Path], settings: Settings) -> list[tuple[str, list[Finding]]]:
    """Each file with its findings; a file that is no text has that as its finding."""
    sources: list[Source] = []
    unreadable: dict[str, list[Finding]] = {}
    for file in files:
        try:
            sources.append(Source(text=_text(file), file=str(file)))
        except UnicodeDecodeError as error:
            unreadable[str(file)] = [_not_text(error)]
    # A file that stands here is its operator's, and so is the code it names (decision 38).
    reports = check_together(sources, registry.manifests(), settings.home.root, import_modules=True)
    found = {r.file: list(r.findings) for r in reports} | unreadable
    return [(str(file), found[str(file)]) for file in files]


def _text(file: Path) -> str:
    raw = read(file)
    return raw.decode("utf-8", "strict" if len(raw) <= BYTES_LIMIT else "replace")


def read(file: Path) -> bytes:
    """A pipeline file's bytes, no more than it takes to see that it is too large.

    A pipe is read to its end, as what a shell puts in a file's place.
    Raises: BadRequest, when it cannot be read, or a pipe says nothing for PIPE_WAIT_S.
    """
    try:
        # A pipe without a writer would hold up the opening itself.
        with open(file, "rb", buffering=0, opener=_without_waiting) as opened:
            # A device has no end.
            return _read(opened, file, BYTES_LIMIT + 1)
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(opened: io.RawIOBase, file: Path, most: int) -> bytes:
    content = bytearray()
    while len(content) < most:
        piece = opened.read(most - len(content))
        if piece is None:
            if not select.select([opened], [], [], PIPE_WAIT_S)[0]:
                raise BadRequest(f"nothing comes from the pipe {file}", hint="name a file")
        elif not piece:
            break
        else:
            content += piece
    return bytes(content)


def _not_text(error: UnicodeDecodeError) -> Finding:
    before = error.object[: error.start]
    line_start = before.rfind(b"\n") + 1
    return Finding(
        code="P001",
        severity="error",
        message=f"byte {error.start} is not UTF-8",
        hint="save the file as UTF-8 text",
        line=before.count(b"\n") + 1,
        col=len(before[line_start:].decode("utf-8")) + 1,
    )


def _ordered(found: Sequence[Finding]) -> list[Finding]:
    return sorted(found, key=lambda f: (f.line, f.col, f.code))
