"""From a spec to an exit code, and one report."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from pipo import collector
from pipo.errors import InvalidState
from pipo.journal.sqlite_journal import JournalFailed
from pipo_runner.pipeline.life.ends import End
from pipo_runner.pipeline.main import CRASHED, run
from pipo_runner.pipeline.process import PipelineProcess
from pipo_runner.spec import ProcessSpec
from tests.unit.runner.pipeline.rig import PLAIN


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessSpec:
    """A pipeline that can run; nothing of the test's own process is changed for good."""
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(collector, "calm", lambda: None)
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    (home / "run").mkdir(parents=True)
    file = tmp_path / "people.pipo"
    file.write_text(f"pipo: 1\nname: people\n{PLAIN}")
    return ProcessSpec(
        home=str(home),
        name="people",
        file=str(file),
        runner_id="r1",
        bind="127.0.0.1",
        advertise="127.0.0.1",
        restarts=0,
    )


class Reports(list[dict[str, Any]]):
    def __call__(self, report: dict[str, Any]) -> None:
        self.append(report)


def test_a_clean_end_is_0(spec: ProcessSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = PipelineProcess.run_to_end

    async def end_at_once(self: PipelineProcess) -> int:
        self.end(End("suspend", "shutdown"))
        return await ran(self)

    monkeypatch.setattr(PipelineProcess, "run_to_end", end_at_once)
    reports = Reports()
    assert run(spec, reports) == 0
    (report,) = reports
    assert report["ok"]
    assert report["address"].startswith("127.0.0.1:")


def test_a_bad_file_is_1_and_touches_no_journal(spec: ProcessSpec) -> None:
    Path(spec.file).write_text("pipo: 1\nname: people\n")
    reports = Reports()
    assert run(spec, reports) == 1
    (report,) = reports
    assert report["error"]["code"] == "invalid_pipeline"
    assert report["error"]["findings"]
    assert not list(Path(spec.home).glob("pipelines/people/journal*"))


def test_a_refused_start_is_1_with_its_hint(
    spec: ProcessSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: PipelineProcess) -> str:
        raise InvalidState("not today", hint="tomorrow")

    monkeypatch.setattr(PipelineProcess, "start", refused)
    reports = Reports()
    assert run(spec, reports) == 1
    assert reports == [
        {"error": {"code": "invalid_state", "message": "not today", "hint": "tomorrow"}}
    ]


def test_a_bug_in_the_start_is_a_crash(spec: ProcessSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: PipelineProcess) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(PipelineProcess, "start", broken)
    reports = Reports()
    assert run(spec, reports) == CRASHED
    assert [report["error"]["code"] for report in reports] == ["internal"]


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), JournalFailed("the disk is gone")])
def test_a_failure_once_it_serves_is_a_crash_and_no_second_report(
    spec: ProcessSpec, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(self: PipelineProcess) -> int:
        raise error

    monkeypatch.setattr(PipelineProcess, "run_to_end", fail)
    reports = Reports()
    assert run(spec, reports) == CRASHED
    assert [report.get("ok") for report in reports] == [True]
