"""Commands that start and stop: `run`, `start`, `stop`, `restart`, `pause`, `resume`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipo.clock import SystemClock
from pipo.errors import Internal, InvalidPipeline, InvalidState, NotFound
from pipo_cli import on_demand
from pipo_cli.failures import BrokenFile
from pipo_cli.gateway import error_of
from pipo_cli.missing import no_such
from pipo_cli.parameters import GATEWAY_PORT, Port
from pipo_cli.render import findings
from pipo_cli.settings import Settings, global_options, pass_settings

if TYPE_CHECKING:
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.client import Operations

CHECK_TIMEOUT_S = 120
RESUME_POLL_S = 0.1
# A process that is coming up holds its lease for a while before it answers.
GOING = frozenset({"starting", "backoff", "unreachable", "running"})


def ttl_option(command: Any) -> Any:
    """`--ttl`, as `start` and `restart` take it."""
    return click.option("--ttl", metavar="D", help="Its lifetime this time, like 30m or 8h.")(
        command
    )


def listen_option(command: Any) -> Any:
    """`--listen`, as `start` and `restart` take it."""
    said = "A port on 127.0.0.1 that its http input serves itself; kept for later starts."
    return click.option("--listen", type=Port(), metavar="PORT", help=said)(command)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--listen", type=GATEWAY_PORT, metavar="PORT", help="The gateway's port.  [8787]")
@click.option("--env-allow", default="", metavar="A,B", help="Variables that expressions may see.")
@global_options
@pass_settings
def run(settings: Settings, paths: tuple[str, ...], listen: int | None, env_allow: str) -> None:
    """Run pipeline files, or every one below a folder, until Ctrl-C."""
    if settings.json:
        raise click.UsageError("pipo run has no --json", click.get_current_context())
    files = _checked(paths, settings)
    from pipo_cli import foreground

    names = tuple(name for name in env_allow.split(",") if name)
    asyncio.run(
        foreground.run(
            settings.home,
            settings.config,
            files,
            listen=listen,
            env_allow=names,
            clock=SystemClock(),
        )
    )


@click.command()
@click.argument("target", metavar="FILE|NAME")
@ttl_option
@listen_option
@click.option(
    "--detached/--no-detached",
    default=None,
    help="It outlives the engine.  [engine.detached]",
)
@global_options
@pass_settings
def start(
    settings: Settings, target: str, ttl: str | None, listen: int | None, detached: bool | None
) -> None:
    """Start a pipeline in the background, and the engine when none runs."""
    on_demand.refuse_without(settings, "pipo start", ", or use `pipo run FILE`")
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.answers import answer

    _judge(ttl)
    file = _file_of(target)
    if file is not None:
        _checked([target], settings)
    if file is None and not on_demand.is_up(settings):
        on_demand.require(settings, target)
    patience_s = settings.config.start_timeout_s if on_demand.for_command(settings) else 0.0
    request = pipo_pb2.StartRequest(
        target=target if file is None else str(file.absolute()),
        ttl=ttl,
        listen=listen,
        detached=detached,
    )
    # A gateway that was named may be that of another machine, which does not see the file.
    unseen = file if settings.url else None
    try:
        answer(
            settings,
            lambda asked: _start(asked, request, patience_s, unseen),
            _started,
            "started",
            waiting=f"starting {target}",
        )
    except InvalidPipeline as error:
        raise BrokenFile(target, error) from error


@click.command()
@click.argument("name")
@click.option("--now", is_flag=True, help="At once: what is in flight stays in the journal.")
@global_options
@pass_settings
def stop(settings: Settings, name: str, now: bool) -> None:
    """Stop a pipeline once its packets are done."""
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.answers import answer

    request = pipo_pb2.StopRequest(pipeline=name, now=now)
    answer(
        settings,
        lambda operations: operations.stop(request),
        _stopped,
        "stopped",
        waiting=f"stopping {name}",
    )


@click.command()
@click.argument("name")
@ttl_option
@listen_option
@global_options
@pass_settings
def restart(settings: Settings, name: str, ttl: str | None, listen: int | None) -> None:
    """Stop a pipeline once its packets are done, and start it again from its file."""
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.answers import answer

    _judge(ttl)
    on_demand.refuse_without(settings, "pipo restart", "")
    if not on_demand.is_up(settings):
        on_demand.require(settings, name)
    patience_s = settings.config.start_timeout_s if on_demand.for_command(settings) else 0.0
    request = pipo_pb2.RestartRequest(pipeline=name, ttl=ttl, listen=listen)
    answer(
        settings,
        lambda operations: _restart(operations, request, patience_s),
        _restarted,
        "restarted",
        waiting=f"restarting {name}, once its packets are done",
    )


@click.command()
@click.argument("name")
@global_options
@pass_settings
def pause(settings: Settings, name: str) -> None:
    """Hold a running pipeline: it accepts packets, and none moves until it is resumed."""
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.answers import answer

    request = pipo_pb2.PauseRequest(pipeline=name)
    answer(settings, lambda operations: operations.pause(request), _paused, "paused")


@click.command()
@click.argument("name")
@global_options
@pass_settings
def resume(settings: Settings, name: str) -> None:
    """Let a paused pipeline go on: it works through what it accepted meanwhile."""
    from pipo.rpc.stubs import pipo_pb2
    from pipo_cli.answers import answer

    request = pipo_pb2.ResumeRequest(pipeline=name)
    answer(settings, lambda operations: operations.resume(request), _resumed, "resumed")


def _judge(ttl: str | None) -> None:
    """Raises: BadRequest, for what is no lifetime: before a stack comes up for it (edge 322)."""
    if ttl is not None:
        from pipo.access.requests import check_ttl

        check_ttl(ttl)


async def _start(
    operations: Operations,
    request: pipo_pb2.StartRequest,
    patience_s: float,
    unseen: Path | None = None,
) -> pipo_pb2.PipelineInfo:
    """The started pipeline.

    The host of a stack that has just come up brings back what should run, and may be
    first; for up to `patience_s` that is waited for, and counts as this start, unless this one
    says how it is to run. `unseen` is a file that the other side may lack: then it is sent
    (decision 37).
    """
    try:
        return await operations.start(request)
    except NotFound:
        if unseen is None:
            raise
        return await operations.start(_as_text(request, unseen))
    except InvalidState:
        said = request.HasField("ttl") or request.HasField("listen") or request.HasField("detached")
        if said or not patience_s:
            raise
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while (found := await _going(operations, request.target)) is not None:
                    if found.state == "running":
                        return found
                    await asyncio.sleep(RESUME_POLL_S)
        raise


async def _restart(
    operations: Operations, request: pipo_pb2.RestartRequest, patience_s: float
) -> pipo_pb2.PipelineInfo:
    """The restarted pipeline; one that an engine just brought up is still coming back."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while patience_s and (found := await _going(operations, request.pipeline)):
                if found.state == "running":
                    break
                await asyncio.sleep(RESUME_POLL_S)
    return await operations.restart(request)


def _as_text(request: pipo_pb2.StartRequest, file: Path) -> pipo_pb2.StartRequest:
    """The same start, with the file's text and those of the files that it names."""
    from pipo_cli.sending import sent

    texts = sent(file, unchanged="nothing was started")
    made = type(request)(name=texts.name, source=texts.source, files=texts.files)
    request.ClearField("target")
    made.MergeFrom(request)
    return made


async def _going(operations: Operations, target: str) -> pipo_pb2.PipelineInfo | None:
    """The pipeline of this name or file, if it runs or is about to."""
    for one in (await operations.list_pipelines()).pipelines:
        if target in (one.name, one.file) and one.state in GOING:
            return one
    return None


def _started(pipeline: pipo_pb2.PipelineInfo) -> list[str]:
    return [f"started {pipeline.name} (pid {pipeline.pid})"]


def _restarted(pipeline: pipo_pb2.PipelineInfo) -> list[str]:
    if pipeline.state == "stopping":
        return [f"draining {pipeline.name}; it starts again when its packets are done"]
    return [f"restarted {pipeline.name} (pid {pipeline.pid})"]


def _stopped(reply: pipo_pb2.StopReply) -> list[str]:
    if reply.state == "stopped":
        return [
            f"{reply.pipeline} is already stopped" if reply.already else f"stopped {reply.pipeline}"
        ]
    return [f"draining {reply.pipeline}; it stops when its packets are done"]


def _paused(reply: pipo_pb2.PauseReply) -> list[str]:
    name = reply.pipeline
    return [f"{name} is already paused" if reply.already else f"paused {name}"]


def _resumed(reply: pipo_pb2.ResumeReply) -> list[str]:
    name = reply.pipeline
    return [f"{name} is not paused" if reply.already else f"resumed {name}"]


def _file_of(target: str) -> Path | None:
    """The file that `target` means, or None when it is a pipeline's name (decision 16)."""
    path = Path(target)
    if "/" not in target and path.suffix != ".pipo" and not path.is_file():
        return None
    if not path.is_file():
        raise no_such(path)
    return path


def _checked(paths: Sequence[str], settings: Settings) -> list[str]:
    """The files that the paths name, once all of them pass their check.

    The check runs in a process of its own: what it imports is not carried along by a
    supervisor that lives for weeks.
    Raises: BrokenFile, with the findings of every file that fails; PipoError, as the check.
    """
    command = [sys.executable, "-m", "pipo_cli", "check", "--json", "--home"]
    done = subprocess.run(
        [*command, str(settings.home.root), "--", *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=CHECK_TIMEOUT_S,
        check=False,
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        raise Internal(f"the check ended with exit code {done.returncode}") from None
    if "files" not in said:
        raise error_of(400, said)
    return _passed(said["files"])


def _passed(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """The files, once their warnings are told. Raises: BrokenFile, with all findings told."""
    found = {str(r["file"]): findings.from_json(r["diagnostics"]) for r in reports}
    broken = [file for file in found if any(f.severity == "error" for f in found[file])]
    # The error itself tells those of the last one.
    for file in broken[:-1] if broken else [file for file in found if found[file]]:
        for line in findings.report(file, found[file]):
            click.echo(line, err=True)
    if not broken:
        return list(found)
    if len(broken) == 1:
        message = f"{broken[0]} does not pass its check"
    else:
        message = f"{len(broken)} files do not pass their check"
    refusal = InvalidPipeline(
        message,
        findings=found[broken[-1]],
        hint="nothing was started; mend it and try again",
    )
    raise BrokenFile(broken[-1], refusal)
