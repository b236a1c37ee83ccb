"""Commands on a pipeline's versions: `history`, `diff`, `rollback`, `apply`."""

from __future__ import annotations

from pathlib import Path

import click

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.answers import answer
from pipo_cli.names import os_user
from pipo_cli.render import versions as text
from pipo_cli.settings import Settings, global_options, pass_settings


@click.command()
@click.argument("name")
@global_options
@pass_settings
def history(settings: Settings, name: str) -> None:
    """List a pipeline's versions, newest first, running or not.

    A * marks the one that new packets use.
    """
    request = pipo_pb2.ListVersionsRequest(pipeline=name)
    answer(
        settings,
        lambda operations: operations.list_versions(request),
        lambda reply: text.history(name, reply),
        "versions",
    )


@click.command()
@click.argument("name")
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@global_options
@pass_settings
def diff(settings: Settings, name: str, old: str, new: str) -> None:
    """Show what differs between two versions, running or not.

    A and B are versions, like 1 or v3. The files that they are made with are compared too.
    """
    request = pipo_pb2.DiffRequest(**{"pipeline": name, "from": old, "to": new})
    answer(settings, lambda operations: operations.diff(request), text.difference, "difference")


@click.command()
@click.argument("name")
@click.argument("number", metavar="V")
@click.option("--by", metavar="WHO", help="Who does it.  [the OS user]")
@global_options
@pass_settings
def rollback(settings: Settings, name: str, number: str, by: str | None) -> None:
    """Put an earlier version in force again, as a new one, while the pipeline runs."""
    request = pipo_pb2.RollbackRequest(pipeline=name, version=number, by=by or os_user())
    answer(
        settings,
        lambda operations: operations.rollback(request),
        lambda reply: text.rolled_back(name, reply),
        "rolled_back",
    )


@click.command()
@click.argument("name")
@click.argument("file", metavar="FILE")
@click.option("--reason", default="", metavar="R", help="Why, for the history.  [applied]")
@click.option("--by", metavar="WHO", help="Who does it.  [the OS user]")
@global_options
@pass_settings
def apply(settings: Settings, name: str, file: str, reason: str, by: str | None) -> None:
    """Put a changed file in force while the pipeline runs.

    New packets use it at once; those in flight finish on the version that accepted them. What
    is bound at start is refused by its name, and needs `pipo restart`.
    """
    # Parsing files is for those who send one.
    from pipo_cli.sending import sent

    texts = sent(Path(file), unchanged="nothing was changed")
    request = pipo_pb2.ApplyRequest(
        pipeline=name,
        source=texts.source,
        files=texts.files,
        reason=reason,
        by=by or os_user(),
    )
    answer(
        settings,
        lambda operations: operations.apply(request),
        lambda reply: text.applied(name, reply),
        "applied",
    )
