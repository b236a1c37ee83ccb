"""Commands that look and change nothing: `status`, `packets`, `inspect`, `events`, `logs`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import click

from pipo.clock import SystemClock
from pipo.errors import NotFound
from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo.rpc.to_json import dumps
from pipo_cli import answers
from pipo_cli.answers import answer
from pipo_cli.client import Connection, connect
from pipo_cli.render import inspect as trace_text
from pipo_cli.render import packets as packet_text
from pipo_cli.render import status as status_text
from pipo_cli.render.events import EventLines, mentions
from pipo_cli.render.tables import printable
from pipo_cli.settings import Settings, global_options, pass_settings, plain

WATCH_EVERY_S = 2.0
FOLLOW_EVERY_S = 0.5
PAGE = 1000
PACKETS = 50
# As the gateway knows them, without loading what checks requests.
STATES = (
    "accepted",
    "processing",
    "writing",
    "verifying",
    "delivered",
    "filtered",
    "dead_lettered",
    "rejected",
    "branched",
    "escalated",
)

_clock = SystemClock()


@click.command()
@click.argument("name", required=False)
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@global_options
@pass_settings
def status(settings: Settings, name: str | None, watch: bool) -> None:
    """Show how the pipelines are, or one of them in detail."""

    async def ask(operations: Any) -> Any:
        if name is None:
            return await operations.list_pipelines()
        return await operations.get_pipeline(name)

    def show(found: Any) -> list[str]:
        if name is None and not found.pipelines and settings.url is None:
            # A mistyped --home is empty, too.
            return [f"no pipelines in {settings.home.root}"]
        if name is None:
            return status_text.overview(found.pipelines, _clock.now_ms())
        return status_text.details(found, _clock.now_ms())

    shape = "pipelines" if name is None else "pipeline"
    if not watch:
        answer(settings, ask, show, shape)
        return
    with suppress(KeyboardInterrupt):
        answers.run(_watch(settings, ask, show, shape))


@click.command()
@click.argument("name")
@click.option(
    "--state", default="", metavar="S", help=f"Only packets in this state: {', '.join(STATES)}."
)
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE),
    default=PACKETS,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@click.option("--after", default="", metavar="ID", help="Go on after this packet.")
@global_options
@pass_settings
def packets(settings: Settings, name: str, state: str, limit: int, after: str) -> None:
    """List a pipeline's packets, newest first."""
    request = pipo_pb2.ListPacketsRequest(pipeline=name, state=state, limit=limit, after=after)
    options = f" --state {state}" if state else ""
    options += f" --limit {limit}" if limit != PACKETS else ""
    answer(
        settings,
        lambda operations: operations.list_packets(request),
        lambda reply: packet_text.page(name, reply, _clock.now_ms(), options=options),
        "packets",
    )


@click.command()
@click.argument("name")
@click.argument("packet_id", metavar="ID")
@global_options
@pass_settings
def inspect(settings: Settings, name: str, packet_id: str) -> None:
    """Tell a packet's whole story."""
    request = pipo_pb2.InspectRequest(pipeline=name, packet_id=packet_id)
    answer(
        settings,
        lambda operations: operations.inspect(request),
        lambda trace: trace_text.story(name, trace, _clock.now_ms()),
        "trace",
    )


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Begin after this.")
@global_options
@pass_settings
def events(settings: Settings, name: str, follow: bool, after: int) -> None:
    """List a pipeline's journal events, oldest first."""
    request = pipo_pb2.ListEventsRequest(pipeline=name, after_seq=after, limit=PAGE)
    with suppress(KeyboardInterrupt):
        answers.run(_events(settings, request, follow))


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option("--node", metavar="ID", help="Only lines that name this node.")
@global_options
@pass_settings
def logs(settings: Settings, name: str, follow: bool, node: str | None) -> None:
    """Print a pipeline's log."""
    with suppress(KeyboardInterrupt):
        answers.run(_logs(settings, name, follow, node))


async def _watch(
    settings: Settings, ask: Callable[..., Any], show: Callable[..., Any], shape: str
) -> None:
    """Asks again and again, through a new connection where the last one was lost."""
    screen = sys.stdout.isatty() and not plain() and not settings.json
    if screen:
        click.clear()
    while True:
        async with connect(settings) as connection:
            found = await ask(connection.operations)
            if screen:
                click.echo("\x1b[H", nl=False)
            answers.print_answer(
                settings,
                connection,
                found,
                lambda reply: over_the_last(show(reply)) if screen else show(reply),
                shape,
            )
        await asyncio.sleep(WATCH_EVERY_S)


def over_the_last(lines: Sequence[str]) -> list[str]:
    """Lines that leave nothing of an earlier, longer answer beside and below them."""
    return [*(f"{line}\x1b[K" for line in lines[:-1]), f"{lines[-1]}\x1b[J"]


async def _events(settings: Settings, request: pipo_pb2.ListEventsRequest, follow: bool) -> None:
    """All pages as lines; with --json one page, or with -f one object per event."""
    async with connect(settings) as connection:
        if settings.json and not follow:
            from pipo.access import answers as shapes

            reply = await connection.operations.list_events(request)
            answers.print_json(connection, shapes.events(reply, request.pipeline))
            return
        lines = EventLines()
        source = (
            connection.operations.watch_events(request) if follow else _pages(connection, request)
        )
        async for reply in source:
            shown = map(_event_json, reply.events) if settings.json else lines.of(reply.events)
            for line in shown:
                click.echo(line)
        if not settings.json:
            answers.print_engine(connection)


def _event_json(event: packet_pb2.Event) -> bytes:
    from pipo.access import answers as shapes

    return dumps(shapes.event(event))


async def _pages(
    connection: Connection, request: pipo_pb2.ListEventsRequest
) -> AsyncIterator[pipo_pb2.ListEventsReply]:
    while True:
        reply = await connection.operations.list_events(request)
        yield reply
        if not reply.more or not reply.events:
            return
        request.after_seq = reply.events[-1].seq


async def _logs(settings: Settings, name: str, follow: bool, node: str | None) -> None:
    async with connect(settings) as connection:
        request = pipo_pb2.LogsRequest(pipeline=name, tail=PAGE if node else 0)
        while True:
            reply = await connection.operations.logs(request)
            if not follow and not reply.next:
                raise NotFound(f"no log of {name} yet", hint="it is made when the pipeline starts")
            _print_log(settings, connection, reply, node, follow)
            if not follow:
                break
            request.after = reply.next
            await asyncio.sleep(FOLLOW_EVERY_S)


def _print_log(
    settings: Settings,
    connection: Connection,
    reply: pipo_pb2.LogsReply,
    node: str | None,
    follow: bool,
) -> None:
    kept = [line for line in reply.lines if node is None or mentions(node, line)]
    del reply.lines[:]
    reply.lines.extend(kept)
    if settings.json and (kept or not follow):
        from pipo.access import answers as shapes

        answers.print_json(connection, shapes.logs(reply))
    elif not settings.json:
        for line in kept:
            click.echo(printable(line))
        if not follow:
            answers.print_engine(connection)
