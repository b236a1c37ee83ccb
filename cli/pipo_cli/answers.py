"""One question, one answer: connect, ask, print as text or JSON, say whether the engine was up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from pipo.rpc.to_json import to_json
from pipo_cli.client import Connection, Operations, connect
from pipo_cli.settings import Settings

M = TypeVar("M", bound=Message)
R = TypeVar("R")

ENGINE_DOWN = "engine: down"


def answer(
    settings: Settings,
    ask: Callable[[Operations], Awaitable[M]],
    show: Callable[[M], Sequence[str]],
) -> M:
    """Asks once and prints the answer.

    Raises: PipoError, as the operation does.
    """

    async def once() -> M:
        async with connect(settings) as connection:
            found = await ask(connection.operations)
            print_answer(settings, connection, found, show)
            return found

    return run(once())


def print_answer(
    settings: Settings, connection: Connection, found: M, show: Callable[[M], Sequence[str]]
) -> None:
    """The answer on stdout."""
    if settings.json:
        click.echo(with_engine(to_json(found), connection.engine))
        return
    for line in show(found):
        click.echo(line)
    print_engine(connection)


def print_engine(connection: Connection) -> None:
    """The last line of a text that was made without a gateway."""
    if connection.engine == "down":
        click.echo(ENGINE_DOWN)


def with_engine(text: bytes, engine: str) -> bytes:
    """A JSON object with `engine` as its last key; what stands in it is not touched."""
    inside = text[1:-1]
    return b"{" + inside + (b"," if inside else b"") + f'"engine":"{engine}"'.encode() + b"}"


def run(work: Coroutine[Any, Any, R]) -> R:
    """Runs the coroutine to its end; Ctrl-C cancels it."""
    return asyncio.run(work)
