"""Counts the seed statements that the tests show, and tells the count.

A statement is covered when a test that carries its id (`@pytest.mark.seed("D012")`)
ran and passed. `tests/seeds/statements.txt` lists every id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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


class SeedCoverage:
    """Which ids the tests that ran carry, and which of them were shown.

    The ids travel with each report, since a test may have run in another process. With a
    `log` the count goes there, one line of JSON for a run, and nothing is printed.
    """

    def __init__(self, log: Path | None = None) -> None:
        self.known = frozenset(STATEMENTS.read_text(encoding="utf-8").split())
        self.log = log
        self.shown: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            ids = [str(i) for mark in item.iter_markers("seed") for i in mark.args]
            if unknown := set(ids) - self.known:
                raise pytest.UsageError(f"{item.nodeid}: no seed statement {sorted(unknown)}")
            item.user_properties += [("seed", id) for id in ids]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = [str(value) for name, value in report.user_properties if name == "seed"]
        if report.failed:
            self.failed.update(ids)
        elif report.when == "call" and report.passed:
            self.shown.update(ids)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as log:
                print(json.dumps([sorted(self.shown), sorted(self.failed)]), file=log)
            return
        for line in self.told():
            terminalreporter.write_line(line)

    def add(self, log: Path) -> None:
        """Counts what earlier runs have left in their log."""
        for line in log.read_text(encoding="utf-8").splitlines():
            shown, failed = json.loads(line)
            self.shown.update(shown)
            self.failed.update(failed)

    def told(self) -> list[str]:
        """The lines for a person; none when no test that ran carries an id."""
        if not self.shown | self.failed:
            return []
        covered = self.shown - self.failed
        first = f"seed statements: {len(covered)} of {len(self.known)} covered by tests that ran"
        told = [first, *(f"  {id} failed" for id in sorted(self.failed))]
        waiting = [f"{id} ({what})" for id, what in NOT_BUILT.items() if id not in covered]
        return [*told, f"  not built yet (decision 47): {', '.join(waiting)}"] if waiting else told
