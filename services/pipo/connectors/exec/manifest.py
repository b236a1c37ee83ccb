"""exec: runs a program, without a shell."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role, Schema
from pipo.connectors.schema import (
    choice,
    closed,
    duration,
    integer,
    list_of,
    map_of,
    path,
    paths_below,
    program,
    text,
)

_WITH: Schema = closed(
    required=("command",),
    command=program("A program on PATH, or a path with a `/`.", minLength=1),
    args=list_of(
        text("One argument."), "The arguments, one each; no shell reads them.", default=[]
    ),
    cwd=path("The folder it runs in; the pipeline's own unless set.", default="."),
    env=map_of({"type": "string"}, "Variables beside the runner's own."),
    stdin=text("What it reads; what is no text is JSON.", default=""),
    timeout=duration("How long it may take.", default="5m"),
    success=list_of(
        integer("An exit code."), "The exit codes that count as success.", default=[0], minItems=1
    ),
    result=choice(
        "What the step returns: everything about the run, its output as text, or as JSON.",
        "info",
        "text",
        "json",
        default="info",
    ),
    outputs=paths_below(
        "cwd", "The files it must have made, relative to `cwd`; their folders are made before."
    ),
)

MANIFEST = Manifest(
    name="exec",
    summary="Runs a program, without a shell.",
    tap=Role(_WITH, effect="external"),
    transform=Role(_WITH, effect="external"),
)
