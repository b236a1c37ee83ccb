"""Commands that send packets on their way: `push`, `ack`, `resolve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pipo import payload
from pipo.errors import BadRequest
from pipo.rpc.stubs import pipo_pb2
from pipo_cli.answers import answer
from pipo_cli.names import os_user
from pipo_cli.render.packets import acked, pushed, resolved
from pipo_cli.settings import Settings, global_options, pass_settings

ACTIONS = ("retry", "dead_letter", "drop")


@click.command()
@click.argument("name")
@click.option("--data", metavar="JSON", help="The packet's data.")
@click.option("--file", metavar="FILE", help="A file that holds it; - is standard input.")
@click.option("--source", default="cli", show_default=True, help="Who sends it (meta.source).")
@click.option("--input", "input_name", default="", metavar="NAME", help="Through this input.")
@global_options
@pass_settings
def push(
    settings: Settings,
    name: str,
    data: str | None,
    file: str | None,
    source: str,
    input_name: str,
) -> None:
    """Send one packet into a running pipeline."""
    if (data is None) == (file is None):
        raise click.UsageError("give either --data or --file", click.get_current_context())
    text, place = (os.fsencode(data), "--data") if data is not None else _read(str(file))
    request = pipo_pb2.PushRequest(
        pipeline=name, data=_json(text, place), source=source, input=input_name
    )
    answer(
        settings,
        lambda operations: operations.push(request),
        lambda reply: [pushed(reply)],
        "pushed",
    )


@click.command()
@click.argument("name")
@click.argument("packet_id", metavar="ID")
@click.option("--by", metavar="WHO", help="Who confirms it.  [the OS user]")
@global_options
@pass_settings
def ack(settings: Settings, name: str, packet_id: str, by: str | None) -> None:
    """Confirm a delivery that waits for it (check: external).

    ID is a packet's, or that of a copy of a split one: <packet_id>:<branch>.
    """
    request = pipo_pb2.AckRequest(pipeline=name, packet_id=packet_id, by=by or os_user())
    answer(
        settings,
        lambda operations: operations.ack(request),
        lambda reply: [acked(reply)],
        "acked",
    )


@click.command()
@click.argument("name")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--action", required=True, type=click.Choice(ACTIONS), help="What becomes of them.")
@click.option("--reason", default="", help="Why; it is kept in the journal.")
@click.option("--by", metavar="WHO", help="Who decides.  [the OS user]")
@global_options
@pass_settings
def resolve(
    settings: Settings, name: str, ids: tuple[str, ...], action: str, reason: str, by: str | None
) -> None:
    """Decide over packets that wait for someone (escalated): all of them, or none.

    retry runs their step again, dead_letter puts them into the dead-letter queue, and drop
    filters them. An ID is a packet's, or that of a copy of a split one: <packet_id>:<branch>.
    """
    request = pipo_pb2.ResolveRequest(
        pipeline=name, ids=ids, action=action, reason=reason, by=by or os_user(), by_kind="human"
    )
    answer(
        settings,
        lambda operations: operations.resolve(request),
        lambda reply: resolved(name, reply),
        "resolved",
    )


def _read(file: str) -> tuple[bytes, str]:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes(), file
    except OSError as error:
        raise BadRequest(
            f"cannot read {file}: {error.strerror}", hint="name a file that holds JSON"
        ) from error


def _json(text: bytes, place: str) -> bytes:
    """The text, once it is known to be what a packet may carry."""
    try:
        payload.decode(text)
    except payload.BadPayload as error:
        raise BadRequest(
            f"{place} is not JSON: {error}",
            hint='quote it for the shell, like --data \'{"name": "Ada"}\'',
        ) from error
    return text
