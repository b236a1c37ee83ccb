"""`pipo runners` lists the pipeline processes; `pipo attach` has the engine take them over."""

from __future__ import annotations

import click

from pipo.clock import SystemClock
from pipo.home import engine as engines
from pipo.rpc.stubs import pipo_pb2
from pipo_cli import on_demand
from pipo_cli.answers import answer
from pipo_cli.client import Operations
from pipo_cli.render import engine as text
from pipo_cli.settings import Settings, global_options, pass_settings

_clock = SystemClock()


@click.command()
@global_options
@pass_settings
def runners(settings: Settings) -> None:
    """List the pipeline processes, and who supervises them.

    attached: by the engine. detached: it outlives the engine. stale: it is gone, and nobody has
    noticed. unreachable: it does not answer.
    """
    answer(
        settings,
        lambda operations: operations.list_runners(),
        lambda reply: text.runners(reply, _clock.now_ms()),
        "runners",
    )


@click.command()
@click.argument("name", required=False)
@global_options
@pass_settings
def attach(settings: Settings, name: str | None) -> None:
    """Take over what is detached or stale: one pipeline, or all of them.

    From then on it is the engine's: restarted after a crash, and drained with it.
    """
    on_demand.refuse_without(settings, "pipo attach", "")
    if name is not None and not on_demand.is_up(settings):
        on_demand.require(settings, name)
    request = pipo_pb2.AttachRequest(pipeline=name or "")

    async def ask(operations: Operations) -> pipo_pb2.AttachReply:
        return pipo_pb2.AttachReply() if nothing else await operations.attach(request)

    # No engine comes up to find that there is nothing to take over.
    nothing = name is None and not on_demand.is_up(settings) and not engines.busy(settings.home)
    if not nothing:
        on_demand.for_command(settings)
    answer(
        settings,
        ask,
        text.attached,
        "attached",
        waiting=f"attaching {name or 'what is detached'}",
    )
