"""One question, one answer: connect, ask, print as text or JSON, say whether the engine was up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import click

from pipo.rpc.to_json import dumps
from pipo_cli.client import Connection, Operations, connect
from pipo_cli.progress import progress
from pipo_cli.settings import Settings

M = TypeVar("M")
R = TypeVar("R")

ENGINE_DOWN = "engine: down"


def answer(
    settings: Settings,
    ask: Callable[[Operations], Awaitable[M]],
    show: Callable[[M], Sequence[str]],
    shape: str,
    *,
    waiting: str = "",
) -> None:
    """Asks once and prints the answer: lines by `show`, or JSON by the REST shape of that name.

    `waiting` is shown on a terminal until the answer is there.
    Raises: PipoError, as the operation does.
    """

    async def once() -> None:
        async with connect(settings) as connection:
            with progress(settings, waiting) if waiting else nullcontext():
                found = await ask(connection.operations)
            print_answer(settings, connection, found, show, shape)

    run(once())


def print_answer(
    settings: Settings,
    connection: Connection,
    found: M,
    show: Callable[[M], Sequence[str]],
    shape: str,
) -> None:
    """The answer on stdout."""
    if settings.json:
        print_json(connection, _shaped(shape, found))
        return
    for line in show(found):
        click.echo(line)
    print_engine(connection)


def print_json(connection: Connection, shaped: Mapping[str, Any]) -> None:
    """A REST answer with `engine` as its last key."""
    click.echo(dumps({**shaped, "engine": connection.engine}))


def print_engine(connection: Connection) -> None:
    """The last line of a text that was made without a gateway."""
    if connection.engine == "down":
        click.echo(ENGINE_DOWN)


def _shaped(shape: str, found: Any) -> Mapping[str, Any]:
    # Only JSON needs it, and it brings what a gateway's client does without.
    from pipo.access import answers

    shaped: Mapping[str, Any] = getattr(answers, shape)(found)
    return shaped


def run(work: Coroutine[Any, Any, R]) -> R:
    """Runs the coroutine to its end; Ctrl-C cancels it."""
    return asyncio.run(work)
