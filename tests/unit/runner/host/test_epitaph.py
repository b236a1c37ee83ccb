"""The stop that is journaled for a process that could not, and the pause that outlives it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict
from pipo.home import Home, PipelineHome
from pipo.home.leases import Lease
from pipo.journal.changes import Paused, Started
from pipo.journal.endings import last_ending
from pipo.journal.recover import pause_reason
from pipo_runner.host import epitaph
from pipo_runner.spec import ProcessSpec
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, version


@pytest.fixture
def files(tmp_path: Path) -> PipelineHome:
    home = Home(tmp_path)
    home.ensure()
    made = home.pipeline("people")
    made.ensure()
    return made


def paused_run(files: PipelineHome) -> None:
    """A run that was killed in a pause."""

    async def crash() -> None:
        journal = open_quick(files.folder)
        await journal.commit(version(), Started(1, 0, AT), Paused("manual", AT))
        await journal.close(clean=False)

    asyncio.run(crash())


def bury(files: PipelineHome, reason: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the reports."""
    reports: list[dict[str, Any]] = []
    spec = ProcessSpec(
        home=str(files.folder.parents[1]),
        name="people",
        file="",
        runner_id="r1",
        bind="127.0.0.1",
        advertise="127.0.0.1",
        restarts=0,
        options={"reason": reason},
    )
    return epitaph.run(spec, reports.append), reports


def left(files: PipelineHome) -> tuple[str, str | None]:
    """How the journal says that the run ended, and whether the next one begins paused."""

    async def look() -> tuple[str, str | None]:
        journal = open_quick(files.folder)
        try:
            ending = await last_ending(journal.rows)
            assert ending is not None
            return ending.reason, await pause_reason(journal.rows)
        finally:
            await journal.close(clean=True)

    return asyncio.run(look())


@pytest.mark.parametrize(("reason", "pause"), [("crashed", "manual"), ("killed", None)])
def test_the_pause_of_a_crashed_run_outlives_its_stop(
    files: PipelineHome, reason: str, pause: str | None
) -> None:
    paused_run(files)
    assert bury(files, reason) == (0, [{"ok": True}])
    assert left(files) == (reason, pause)


def test_what_never_ran_needs_no_stop(files: PipelineHome) -> None:
    assert bury(files, "crashed") == (0, [{"ok": True}])
    assert not files.journal.exists()


def test_a_process_that_lives_is_not_buried(files: PipelineHome) -> None:
    paused_run(files)
    lease = Lease.acquire(files.lease, clock=SystemClock())
    try:
        code, (report,) = bury(files, "crashed")
    finally:
        lease.release()
    assert (code, report["error"]["code"]) == (1, Conflict.code)
