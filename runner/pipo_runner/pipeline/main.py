"""The entry of a pipeline process: from a `ProcessSpec` to an exit code.

Exit codes: 0 a clean end, 1 it cannot start (`report` says why) or a policy halted it, anything else a
crash that the host answers with a restart.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipo.clock import SystemClock
from pipo.connectors import registry as connectors
from pipo.errors import Conflict, InvalidPipeline, PipoError
from pipo.home import Home, tokens
from pipo.home import config as configuration
from pipo.home.leases import Lease
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.telemetry.logs import logger
from pipo_runner.pipeline.definition.versions import read_definition
from pipo_runner.pipeline.intake.own_port import own_port
from pipo_runner.pipeline.life.ends import End
from pipo_runner.pipeline.process import PipelineProcess
from pipo_runner.spec import ProcessSpec

Report = Callable[[dict[str, Any]], None]
CRASHED = 70
JOURNAL_CLOSE_S = 5.0


def run(spec: ProcessSpec, report: Report) -> int:
    """Runs one pipeline to its end.

    `report` is called once: with `{"ok": true, "address", "pid"}` when it serves, or
    with `{"error": {...}}` before it exits with 1.
    """
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(spec, report))
    except PipoError as error:
        report({"error": _described(error)})
        logger("pipeline").error("cannot start", error=error.message, hint=error.hint)
        return 1


async def _run(spec: ProcessSpec, report: Report) -> int:
    clock = SystemClock()
    home = Home(Path(spec.home))
    config = configuration.load(home)
    files = home.pipeline(spec.name)
    files.ensure()
    # The definition first: a broken file never touches the journal.
    manifests = connectors.manifests()
    definition = read_definition(
        Path(spec.file),
        spec.name,
        manifests,
        home.root,
        uploaded_code=config.allow_uploaded_code,
    )
    lease = _lease(spec.name, files.lease, clock)
    journal: SqliteJournal | None = None
    listening: socket.socket | None = None
    serves = False
    try:
        # A port that is taken touches no journal either: the start begins no lifetime.
        listening = own_port(definition.pipeline, spec.options, home)
        journal = SqliteJournal.open(files.folder, pipeline=spec.name, clock=clock)
        process = PipelineProcess(
            spec,
            home=home,
            config=config,
            clock=clock,
            definition=definition,
            journal=journal,
            internal_token=tokens.internal_token(home),
            listening=listening,
        )
        _on_signals(process)
        address = await process.start()
        serves = True
        report({"ok": True, "address": address, "pid": process.pid})
        return await process.run_to_end()
    except Exception as error:
        # Once it serves, every failure is a crash: a journal that fails is a PipoError too.
        if isinstance(error, PipoError) and not serves:
            raise
        log = logger("pipeline")
        if isinstance(error, PipoError):
            # It names its cause itself, such as a full disk; a traceback would bury that.
            log.error("the pipeline process failed", error=error.message, hint=error.hint)
        else:
            log.error("the pipeline process failed", exc_info=error)
        if not serves:
            report({"error": {"code": "internal", "message": str(error), "hint": "see its log"}})
        return CRASHED
    finally:
        if listening is not None:
            listening.close()
        if journal is not None:
            # After a clean end this does nothing; otherwise the files stay as a crash leaves them.
            async with asyncio.timeout(JOURNAL_CLOSE_S):
                await journal.close(clean=False)
        lease.release()


def _lease(name: str, path: Path, clock: SystemClock) -> Lease:
    try:
        return Lease.acquire(path, clock=clock)
    except Conflict as error:
        raise Conflict(f"{name} is already running: {error.message}", hint=error.hint) from error


def _on_signals(process: PipelineProcess) -> None:
    """SIGTERM suspends, a second one ends at once (design §2); the terminal's Ctrl-C is the host's."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: process.end(End("suspend", "shutdown")))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _described(error: PipoError) -> dict[str, Any]:
    described: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
    }
    if isinstance(error, InvalidPipeline):
        described["findings"] = [asdict(finding) for finding in error.findings]
    return described
