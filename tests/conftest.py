"""The order and the parts of a test run, and what holds for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seed_coverage import SeedCoverage

# Later ones take longer: most failures show in the first minute.
LAST = ("slow", "crash", "compose")
# What wants the machine, or the Docker engine, for itself.
ALONE = ("alone", "compose")


@pytest.fixture(autouse=True)
def umask_left_alone() -> Iterator[None]:
    """A home narrows its process's umask; the next test starts from what it was."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    ours = parser.getgroup("pipo", "the parts of a run (tests/suite.py)")
    ours.addoption("--part", choices=("together", "alone"), help="only tests that may run so")
    ours.addoption("--seed-log", type=Path, help="where the count goes instead of the terminal")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    if part is not None:
        left_out = [item for item in items if _is_alone(item) != (part == "alone")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_alone(item) == (part == "alone")]
    items.sort(key=lambda item: [item.get_closest_marker(name) is not None for name in LAST[::-1]])


def _is_alone(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ALONE)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SeedCoverage(config.getoption("seed_log")), "seed-coverage")
