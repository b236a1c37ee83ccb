"""The parts of a test run add up: their exit statuses, and the seed statements they show."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.seed_coverage import SeedCoverage
from tests.suite import verdict


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ([0, 0], 0),
        ([1, 0], 1),
        ([0, 1], 1),
        ([3, 1], 3),
        ([5, 0], 0),
        ([0, 5], 0),
        ([5, 1], 1),
        ([5, 5], 5),
        ([2], 2),
    ],
)
def test_one_failed_part_fails_the_whole(codes: list[int], whole: int) -> None:
    assert verdict(codes) == whole


def report(
    outcome: Literal["passed", "failed", "skipped"],
    *ids: str,
    when: Literal["setup", "call", "teardown"] = "call",
) -> pytest.TestReport:
    properties = [("seed", id) for id in ids]
    return pytest.TestReport(
        "t", ("t", 1, "t"), {}, outcome, None, when, user_properties=properties
    )


class Terminal:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def run(log: Path | None, *reports: pytest.TestReport) -> list[str]:
    """What a run with these reports prints."""
    coverage, terminal = SeedCoverage(log), Terminal()
    for one in reports:
        coverage.pytest_runtest_logreport(one)
    coverage.pytest_terminal_summary(terminal)  # type: ignore[arg-type]
    return terminal.lines


def test_a_run_without_a_log_prints_its_count() -> None:
    first, *rest = run(None, report("passed", "D012", "D013"), report("failed", "D013"))
    assert first.startswith("seed statements: 1 of ")
    assert rest[0] == "  D013 failed"
    assert run(None, report("passed")) == []


def test_the_counts_of_two_runs_become_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(log, report("passed", "D012"), report("passed", "D013")) == []
    assert run(log, report("passed", "D014"), report("failed", "D013", when="teardown")) == []
    whole = SeedCoverage()
    whole.add(log)
    first, second, *_ = whole.told()
    assert first.startswith("seed statements: 2 of ")
    assert second == "  D013 failed"


def test_what_was_only_set_up_or_skipped_is_not_shown() -> None:
    shown = run(None, report("passed", "D012"), report("passed", "D013", when="setup"))
    assert shown[0].startswith("seed statements: 1 of ")
    assert run(None, report("skipped", "D012")) == []
