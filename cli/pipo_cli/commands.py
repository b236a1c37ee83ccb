"""Every command by name: where it lives, or that it is not built yet."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import click

from pipo.errors import Unavailable
from pipo_cli.settings import global_options

# Command → where it is defined, and its line in `pipo --help`. A module is imported
# when one of its commands is used: `pipo run` must not carry what the others need.
BUILT: dict[str, tuple[str, str]] = {
    "check": ("pipo_cli.author:check", "Check pipeline files, or every one below a folder."),
    "eval": ("pipo_cli.evaluate:evaluate", "Evaluate an expression against variables."),
    "fmt": ("pipo_cli.formatting:fmt", "Lay pipeline files out, comments and all."),
    "graph": ("pipo_cli.draw:graph", "Draw a pipeline file."),
    "schema": ("pipo_cli.author:schema", "Print the JSON Schema of pipeline files, for editors."),
    "run": ("pipo_cli.running:run", "Run pipeline files until Ctrl-C."),
    "start": ("pipo_cli.running:start", "Start a pipeline in the background."),
    "stop": ("pipo_cli.running:stop", "Stop a pipeline once its packets are done."),
    "restart": ("pipo_cli.running:restart", "Stop a pipeline and start it again."),
    "pause": ("pipo_cli.running:pause", "Hold a pipeline's packets; it goes on accepting them."),
    "resume": ("pipo_cli.running:resume", "Let a paused pipeline go on."),
    "engine": ("pipo_cli.engine:engine", "Start, stop and show the background engine."),
    "status": ("pipo_cli.observe:status", "Show how the pipelines are, or one in detail."),
    "runners": ("pipo_cli.runners:runners", "List the pipeline processes."),
    "attach": ("pipo_cli.runners:attach", "Take over what is detached or stale."),
    "packets": ("pipo_cli.observe:packets", "List a pipeline's packets, newest first."),
    "inspect": ("pipo_cli.observe:inspect", "Tell a packet's whole story."),
    "logs": ("pipo_cli.observe:logs", "Print a pipeline's log."),
    "events": ("pipo_cli.observe:events", "List a pipeline's journal events, oldest first."),
    "push": ("pipo_cli.recover:push", "Send one packet into a running pipeline."),
    "ack": ("pipo_cli.recover:ack", "Confirm a delivery that waits for it."),
    "dlq": ("pipo_cli.dead_letters:dlq", "List dead letters, replay or purge them."),
    "rerun": ("pipo_cli.reruns:rerun", "Run settled packets again, from a node on."),
    "resolve": ("pipo_cli.recover:resolve", "Decide over packets that wait for someone."),
    "history": ("pipo_cli.versions:history", "List a pipeline's versions, newest first."),
    "diff": ("pipo_cli.versions:diff", "Show what differs between two versions."),
    "rollback": ("pipo_cli.versions:rollback", "Put an earlier version in force again."),
    "apply": ("pipo_cli.versions:apply", "Put a changed file in force while it runs."),
}
# Command → what it will do, shown by `pipo --help` and in the refusal.
LATER: dict[str, str] = {
    "backup": "copy the home while it runs",
    "generate": "write a node from a description",
    "new": "make a new pipeline file",
    "restore": "bring a backup back",
    "templates": "list the templates of `pipo new`",
    "test": "run a pipeline's fixtures",
    "trust": "allow a file's code to be imported by checks",
    "ui": "open the dashboard",
}


class CommandTable(click.Group):
    """A group that imports its commands when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BUILT)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in BUILT:
            module, _, name = BUILT[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(module), name)
            return command
        return _later(cmd_name) if cmd_name in LATER else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in BUILT.items()])
        with formatter.section("Not built yet"):
            formatter.write_text(", ".join(LATER))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in [*BUILT, *LATER]:
            near = difflib.get_close_matches(args[0], [*BUILT, *LATER], n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{guess}", ctx)
        return super().resolve_command(ctx, args)


def not_built(words: str) -> Unavailable:
    """The refusal of a command or option that a later version brings."""
    return Unavailable(
        f"pipo {words} is not built yet",
        hint="a later version brings it; `pipo --help` lists what works today",
    )


def _later(name: str) -> click.Command:
    @global_options
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def refuse(words: tuple[str, ...]) -> Any:
        raise not_built(name)

    return click.command(
        name,
        help=f"Not built yet: {LATER[name]}.",
        context_settings={"ignore_unknown_options": True},
    )(refuse)
