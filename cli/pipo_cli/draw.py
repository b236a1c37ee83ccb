"""`pipo graph`: a pipeline file as a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pipo.connectors import registry
from pipo.errors import BadRequest, InvalidPipeline
from pipo.lang.check import Source, parse
from pipo.lang.load import decode
from pipo.lang.model import Pipeline
from pipo.lang.steps import Steps
from pipo_cli.author import read
from pipo_cli.failures import BrokenFile
from pipo_cli.missing import no_such
from pipo_cli.render import flowchart, lanes
from pipo_cli.settings import Settings, global_options, pass_settings, plain

FORMATS = ("text", "mermaid", "dot")


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What to draw.  [text]")
@global_options
@pass_settings
def graph(settings: Settings, file: str, form: str | None) -> int:
    """Draw a pipeline file: its inputs, steps, output and delivery check."""
    if settings.json and form:
        raise click.UsageError("give either --format or --json", click.get_current_context())
    pipeline = _pipeline(Path(file), settings)
    if settings.json:
        click.echo(json.dumps(_listed(file, pipeline), ensure_ascii=False))
        return 0
    encoding = sys.stdout.encoding or "ascii"
    for line in _drawn(pipeline, form or "text", ascii_only=plain() or not _is_unicode(encoding)):
        # The author's words may have letters that the terminal has none for.
        click.echo(line.encode(encoding, "backslashreplace").decode(encoding))
    return 0


def _pipeline(file: Path, settings: Settings) -> Pipeline:
    """The model of a file; no code of its author's is run.

    Raises: NotFound, BadRequest, when there is nothing to read; BrokenFile, with the findings.
    """
    if file.is_dir():
        raise BadRequest(f"{file} is a folder", hint="name one pipeline file")
    if not file.exists():
        raise no_such(file)
    source = Source(decode(read(file)), str(file))
    try:
        return parse(source, registry.manifests(), settings.home.root)
    except InvalidPipeline as error:
        raise _broken(file, error) from error


def _broken(file: Path, error: InvalidPipeline) -> BrokenFile:
    refused = InvalidPipeline(
        f"{file} does not pass its check",
        findings=error.findings,
        hint="mend it, then draw it again",
    )
    return BrokenFile(str(file), refused)


def _drawn(pipeline: Pipeline, form: str, *, ascii_only: bool) -> Sequence[str]:
    if form == "mermaid":
        return flowchart.mermaid(pipeline)
    if form == "dot":
        return flowchart.dot(pipeline)
    return lanes.lines(pipeline, ascii_only=ascii_only)


def _is_unicode(encoding: str) -> bool:
    return encoding.lower().replace("-", "").startswith("utf")


def _listed(file: str, pipeline: Pipeline) -> dict[str, Any]:
    """The graph as `GET /api/pipelines/<name>/graph` lists it, without what only a run has."""
    steps = Steps.of(pipeline)
    return {
        "name": pipeline.name,
        "file": file,
        "nodes": [
            {
                "id": step.id,
                "kind": step.kind,
                "label": step.label,
                "from": list(step.sources),
                "uses": step.uses,
            }
            for step in steps.ordered
        ],
        "loops": [
            {"node": step.id, "back_to": step.loop.back_to, "max": step.loop.max}
            for step in steps.ordered
            if step.loop
        ],
        "unused": [f"{e.source}.{e.branch}" for e in steps.edges() if not e.target],
        "delivered": {"check": pipeline.delivered.check},
    }
