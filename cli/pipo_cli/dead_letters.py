"""`pipo dlq NAME` lists dead letters; `pipo dlq replay` and `pipo dlq purge` act on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pipo.clock import SystemClock
from pipo.rpc.stubs import pipo_pb2
from pipo_cli.answers import answer
from pipo_cli.names import os_user
from pipo_cli.observe import PACKETS, PAGE
from pipo_cli.render import dead_letters as text
from pipo_cli.settings import Settings, global_options, pass_settings

_clock = SystemClock()


class NameOrAction(click.Group):
    """A group whose first word is one of its commands, or a pipeline's name, which lists."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        if len(args) > 1 and args[1] in self.commands:
            words = " ".join([args[1], args[0], *args[2:]])
            raise click.UsageError(f"the action stands first: {ctx.command_path} {words}", ctx)
        return "NAME", listing, args

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME | replay NAME | purge NAME", "[OPTIONS]"]


@click.group(cls=NameOrAction)
@global_options
def dlq() -> None:
    """List a pipeline's dead letters, replay or purge them.

    `pipo dlq NAME [--limit N] [--after ID]` lists them, newest first, running or not.
    """


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, PAGE), default=PACKETS, show_default=True)
@click.option("--after", default="", metavar="ID", help="Go on after this packet.")
@global_options
@pass_settings
def listing(settings: Settings, name: str, limit: int, after: str) -> None:
    """List a pipeline's dead letters, newest first."""
    request = pipo_pb2.ListDeadLettersRequest(pipeline=name, limit=limit, after=after)
    options = f" --limit {limit}" if limit != PACKETS else ""
    answer(
        settings,
        lambda operations: operations.list_dead_letters(request),
        lambda reply: text.page(name, reply, _clock.now_ms(), options=options),
        "dead_letters",
    )


def selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """A pipeline, and which of its dead letters."""
    for option in (
        global_options,
        click.option("--by", metavar="WHO", help="Who does it.  [the OS user]"),
        click.option("--all", "every", is_flag=True, help="Every dead letter there is."),
        click.argument("ids", metavar="[ID]...", nargs=-1),
        click.argument("name"),
    ):
        command = option(command)
    return command


@dlq.command()
@selection
@pass_settings
def replay(
    settings: Settings, name: str, ids: tuple[str, ...], every: bool, by: str | None
) -> None:
    """Put dead letters back in flight, at the step that they failed at.

    The ids are all replayed, or none.
    """
    _either(ids, every)
    request = pipo_pb2.ReplayRequest(pipeline=name, ids=ids, all=every, by=by or os_user())
    answer(
        settings,
        lambda operations: operations.replay(request),
        lambda reply: text.replayed(name, reply),
        "replayed",
    )


@dlq.command()
@selection
@pass_settings
def purge(settings: Settings, name: str, ids: tuple[str, ...], every: bool, by: str | None) -> None:
    """Delete dead letters for good, with their copies and events.

    The ids are all purged, or none. One event of each stays, which tells who purged it.
    """
    _either(ids, every)
    request = pipo_pb2.PurgeRequest(pipeline=name, ids=ids, all=every, by=by or os_user())
    answer(
        settings,
        lambda operations: operations.purge(request),
        lambda reply: text.purged(name, reply),
        "purged",
    )


def _either(ids: tuple[str, ...], every: bool) -> None:
    if bool(ids) is every:
        raise click.UsageError("give either ids or --all", click.get_current_context())
