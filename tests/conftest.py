"""Counts the seed statements that the tests show, and prints the count at the end.

A statement is covered when a test that carries its id (`@pytest.mark.seed("D012")`)
ran and passed. `tests/seeds/statements.txt` lists every id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

STATEMENTS = Path(__file__).parent / "seeds" / "statements.txt"

# Their surface (dashboard, MCP, agent nodes, `pipo test`) comes later; each counts against complete.
NOT_BUILT = {
    "C038": "dry runs of `pipo test` and the builder",
    "D049": "its MCP half",
    "L031": "agent budget caps",
    "R004": "recovery on the dashboard",
    "R005": "MCP tools",
    "R007": "dead letters of agent nodes",
    "R043": "rerun from the packet inspector",
    "R048": "the dashboard's agent tab",
    "R057": "the test packet card",
}


@pytest.fixture(autouse=True)
def umask_left_alone() -> Iterator[None]:
    """A home narrows its process's umask; the next test starts from what it was."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


class SeedCoverage:
    """Which ids the collected tests carry, and which of them were shown."""

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.of_test: dict[str, tuple[str, ...]] = {}
        self.shown: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            ids = tuple(str(i) for mark in item.iter_markers("seed") for i in mark.args)
            if unknown := set(ids) - self.known:
                raise pytest.UsageError(f"{item.nodeid}: no seed statement {sorted(unknown)}")
            self.of_test[item.nodeid] = ids

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = self.of_test.get(report.nodeid, ())
        if report.failed:
            self.failed.update(ids)
        elif report.when == "call" and report.passed:
            self.shown.update(ids)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not any(self.of_test.values()):
            return
        covered = self.shown - self.failed
        say = terminalreporter.write_line
        say(f"seed statements: {len(covered)} of {len(self.known)} covered by tests that ran")
        for id in sorted(self.failed):
            say(f"  {id} failed")
        waiting = [f"{id} ({what})" for id, what in NOT_BUILT.items() if id not in covered]
        if waiting:
            say(f"  not built yet (decision 47): {', '.join(waiting)}")


# Later ones take longer: most failures show in the first minute.
LAST = ("slow", "crash", "compose")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [item.get_closest_marker(name) is not None for name in LAST[::-1]])


def pytest_configure(config: pytest.Config) -> None:
    known = frozenset(STATEMENTS.read_text(encoding="utf-8").split())
    config.pluginmanager.register(SeedCoverage(known), "seed-coverage")
