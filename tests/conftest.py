"""The order and the parts of a test run, and what holds for every test."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.seed_coverage import SeedCoverage

HERE = Path(__file__).resolve().parent
# Later ones take longer: most failures show in the first minute.
LAST = ("slow", "crash", "compose")
# A landed change must not turn red over an example that it has nothing to do with: a run draws
# what the run before it drew, for as long as the test stays as it is. `make soak` draws anew. How
# long an example takes says what else the machine does.
settings.register_profile(
    "drawn-before",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("drawn-anew", settings.get_profile("drawn-before"), derandomize=False)
settings.load_profile("drawn-before")
# The parts of a run that are marked, and not with the others: see tests/suite.py.
APART = ("compose", "alone")


@pytest.fixture(autouse=True)
def umask_left_alone() -> Iterator[None]:
    """A home narrows its process's umask; the next test starts from what it was."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    ours = parser.getgroup("pipo", "the parts of a run (tests/suite.py)")
    ours.addoption("--part", choices=("together", *APART), help="only tests that may run so")
    ours.addoption("--seed-log", type=Path, help="where the count goes instead of the terminal")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Imports all tests, each worker beginning at another place.

    Each of them needs all; a fresh checkout has to rewrite their asserts first, which takes longer
    than all the rest and is written down. So each worker finds what another has done already.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or session.config.args != session.config.getini("testpaths"):
        return
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    files = sorted(HERE.rglob("test_*.py"))
    first = len(files) * int(worker.removeprefix("gw")) // count
    for file in files[first:] + files[:first]:
        # What is wrong with one is told when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Imports for a part that is marked only the files that hold some of it."""
    part = config.getoption("part")
    if part not in APART or not collection_path.match("test_*.py"):
        return None
    return None if f"mark.{part}" in collection_path.read_text(encoding="utf-8") else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    if part is not None:
        left_out = [item for item in items if _part_of(item) != part]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _part_of(item) == part]
    items.sort(key=lambda item: [item.get_closest_marker(name) is not None for name in LAST[::-1]])


def _part_of(item: pytest.Item) -> str:
    marked = (part for part in APART if item.get_closest_marker(part) is not None)
    return next(marked, "together")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SeedCoverage(config.getoption("seed_log")), "seed-coverage")
