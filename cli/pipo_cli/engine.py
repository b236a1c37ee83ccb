"""`pipo engine start|stop|status`: the background engine itself."""

from __future__ import annotations

import threading
from typing import Any

import click

from pipo import __version__
from pipo.clock import SystemClock
from pipo.errors import BadRequest, InvalidState, Unavailable
from pipo.home import engine as engines
from pipo.home import leases
from pipo.home.quantities import duration_s
from pipo.rpc.stubs import pipo_pb2
from pipo_cli import answers, background, on_demand
from pipo_cli.client import Connection, GatewayOperations, connect
from pipo_cli.parameters import GATEWAY_PORT
from pipo_cli.progress import progress
from pipo_cli.render import engine as text
from pipo_cli.settings import Settings, global_options, pass_settings

# A drain takes what its pipeline's `drain_timeout` allows; after this the end goes on by itself.
STOP_WAIT_S = 600.0
# An engine that was asked says at once that it stops; one that has not by then may never.
HEARD_WITHIN_S = 30.0
POLL_S = 0.2

_clock = SystemClock()


@click.group()
@global_options
def engine() -> None:
    """Start, stop and show the background engine: gateway, runner and checker.

    `pipo start` brings it up by itself; it ends itself once
    nothing ran for a while (engine.idle).
    """


@engine.command(short_help="Start the engine, and what should run.")
@click.option("--ttl", metavar="D", help="End after this long, like 8h.  [engine.ttl]")
@click.option("--listen", type=GATEWAY_PORT, metavar="PORT", help="The gateway's port.  [8787]")
@global_options
@pass_settings
def start(settings: Settings, ttl: str | None, listen: int | None) -> None:
    """Start the background engine; pipelines that should run are resumed."""
    on_demand.refuse_without(settings, "pipo engine start", "")
    ttl_s = None if ttl is None else _lifetime(ttl)
    url = on_demand.bring_up(settings, listen=listen, ttl_s=ttl_s)
    if url is None and (ttl is not None or listen is not None):
        raise InvalidState(
            f"the engine of {settings.home.root} already runs{_who(settings)}",
            hint="options need a stop first: pipo engine stop",
        )

    async def tell() -> None:
        async with connect(settings) as connection:
            found = await _engine(connection, settings)
            if not found.listen:
                # Somebody stopped it between the two questions.
                raise Unavailable(
                    "the engine ended just after it answered",
                    hint="start it again: pipo engine start",
                )
            if settings.json:
                _print(connection, "engine", found, already=url is None)
                return
            for line in text.started(found, already=url is None):
                click.echo(line)

    answers.run(tell())


@engine.command()
@global_options
@pass_settings
def stop(settings: Settings) -> None:
    """Stop the engine: its pipelines drain, detached ones stay."""
    answers.run(_stop(settings))


@engine.command()
@global_options
@pass_settings
def status(settings: Settings) -> None:
    """Show the engine of this home."""

    async def tell() -> None:
        async with connect(settings) as connection:
            found = await _engine(connection, settings)
            answers.print_answer(
                settings,
                connection,
                found,
                lambda reply: text.status(reply, _clock.now_ms()),
                "engine",
            )

    answers.run(tell())


async def _stop(settings: Settings) -> None:
    async with connect(settings) as connection:
        operations = connection.operations
        if isinstance(operations, GatewayOperations):
            reply = await operations.stop_engine()
        else:
            reply = _stop_directly(settings)
    ended = not reply.stopped or _gone(settings, reply)
    if settings.json:
        _print(connection, "engine_stopped", reply, ended=ended)
        return
    for line in text.stopped(reply, str(settings.home.root), ended=ended):
        click.echo(line)


def _stop_directly(settings: Settings) -> pipo_pb2.StopEngineReply:
    """Asks an engine whose gateway does not answer, or that is to be asked without."""
    going = engines.going(settings.home)
    asked = engines.ask_to_stop(settings.home)
    if asked is None:
        return pipo_pb2.StopEngineReply(detached=engines.living_detached(settings.home))
    return pipo_pb2.StopEngineReply(
        stopped=True, already=asked.stopping, draining=going.attached, detached=going.detached
    )


def _gone(settings: Settings, reply: pipo_pb2.StopEngineReply) -> bool:
    """Waits until the engine has ended; whether it has.

    Raises: Unavailable, if it does not say in time that it stops.
    """
    names = f"draining {', '.join(reply.draining)}" if reply.draining else "stopping the engine"
    asked_at = _clock.monotonic()
    pause = threading.Event()
    with progress(settings, names):
        while (waited_s := _clock.monotonic() - asked_at) < STOP_WAIT_S:
            if not _runs(settings):
                return True
            if waited_s >= HEARD_WITHIN_S:
                _refuse_deaf(settings)
            pause.wait(POLL_S)
    return False


def _refuse_deaf(settings: Settings) -> None:
    """Raises: Unavailable, if the home's engine was asked to stop and has not said that it does."""
    found = engines.read(settings.home) if settings.url is None else None
    if found is None or found.stopping:
        return
    log = settings.home.service_logs / background.LOG
    raise Unavailable(
        f"the engine of {settings.home.root} (pid {found.pid}) was asked to stop,"
        f" and has not said that it does",
        hint=f"it is suspended (kill -CONT {found.pid}), or cannot write to its home;"
        f" its log may say more: {log}",
    )


def _runs(settings: Settings) -> bool:
    if settings.url is None:
        return leases.holder(engines.lease(settings.home)) is not None
    from pipo_cli import gateway

    return gateway.at(settings.url).health() is not None


async def _engine(connection: Connection, settings: Settings) -> pipo_pb2.Engine:
    """The engine as its gateway tells of it; without one, what the home says."""
    if isinstance(connection.operations, GatewayOperations):
        return await connection.operations.get_engine()
    home = settings.home
    made = pipo_pb2.Engine(
        home=str(home.root),
        pipelines=len(home.pipeline_names()),
        idle=not engines.busy(home),
        idle_s=settings.config.idle_s,
        version=__version__,
    )
    found = engines.read(home)
    if found is not None:
        made.engine_id, made.started_at = engines.INSTANCE, found.started_at
        made.listen, made.grpc_port = found.listen, found.listen + 1
        made.stopping = found.stopping
        if found.ttl_expires_at is not None:
            made.ttl_expires_at = found.ttl_expires_at
    return made


def _print(connection: Connection, shape: str, found: Any, **more: bool) -> None:
    from pipo.access import answers as shapes

    answers.print_json(connection, {**getattr(shapes, shape)(found), **more})


def _lifetime(words: str) -> float:
    try:
        found = duration_s(words)
    except ValueError as error:
        raise BadRequest(f"--ttl: {error}", hint="say how long the engine may live") from error
    if found <= 0:
        raise BadRequest(f"--ttl is {words!r}: a lifetime has a length", hint="write 30m, 8h or 7d")
    return found


def _who(settings: Settings) -> str:
    """`: pipo run, pid 7`; empty where services run without an engine."""
    found = engines.read(settings.home)
    if found is None:
        return ""
    return f": {'pipo run, ' if found.foreground else ''}pid {found.pid}"
