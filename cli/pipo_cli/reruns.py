"""`pipo rerun NAME`: the plan and, with `--yes`, the run."""

from __future__ import annotations

import click

from pipo.rpc.stubs import pipo_pb2
from pipo_cli.answers import answer
from pipo_cli.names import os_user
from pipo_cli.render.reruns import rerun as shown
from pipo_cli.settings import Settings, global_options, pass_settings


@click.command()
@click.argument("name")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--from", "from_", metavar="NODE", required=True, help="A node, or output.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest N that can.")
@click.option("--since", default="", metavar="DURATION", help="Those received since, like 24h.")
@click.option("--all", "every", is_flag=True, help="Every packet that can.")
@click.option("--current", is_flag=True, help="On the version in force, for good.")
@click.option("--yes", is_flag=True, help="Run it; without, only the plan is shown.")
@click.option("--by", metavar="WHO", help="Who does it.  [the OS user]")
@global_options
@pass_settings
def rerun(
    settings: Settings,
    name: str,
    ids: tuple[str, ...],
    from_: str,
    last: int | None,
    since: str,
    every: bool,
    current: bool,
    yes: bool,
    by: str | None,
) -> None:
    """Run delivered or filtered packets again, from a node that they passed.

    Without --yes it shows the plan and runs nothing. Named packets are all rerun, or none; of
    --last, --since and --all those that cannot be are skipped. --last goes with --since.
    """
    if bool(ids) + every + bool(last or since) != 1:
        raise click.UsageError(
            "give ids, --all, or --last and --since", click.get_current_context()
        )
    request = pipo_pb2.RerunRequest(
        pipeline=name,
        ids=ids,
        last=last or 0,
        since=since,
        all=every,
        current=current,
        dry=not yes,
        by=by or os_user(),
        **{"from": from_},
    )
    answer(
        settings,
        lambda operations: operations.rerun(request),
        lambda reply: shown(name, reply),
        "rerun",
    )
