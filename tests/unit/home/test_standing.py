"""An entry of the registry stays as its owner wrote it, for as long as it holds its lease."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Unavailable
from pipo.home import Home, registry, standing
from pipo.home.leases import Lease
from pipo.home.standing import Standing
from tests.unit.home.test_registry import ENTRY


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.ensure()
    home.pipeline(ENTRY.pipeline).ensure()
    return home


@pytest.fixture
def lease(home: Home) -> Iterator[Lease]:
    lease = Lease.acquire(home.pipeline(ENTRY.pipeline).lease, clock=SystemClock())
    yield lease
    lease.release()


@pytest.fixture
def kept(home: Home, lease: Lease) -> Standing:
    kept = registry.kept(home, ENTRY.pipeline, lambda: ENTRY)
    kept.write()
    return kept


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def _replaced(path: Path) -> None:
    older = json.loads(path.read_bytes()) | {"pid": 41, "address": "127.0.0.1:1"}
    path.write_text(json.dumps(older))


@pytest.mark.parametrize("damage", [_cut, _replaced, Path.unlink])
def test_what_somebody_damaged_is_written_again(
    home: Home, kept: Standing, damage: Callable[[Path], None]
) -> None:
    damage(home.run / f"{ENTRY.pipeline}.json")
    kept.look()
    assert registry.read(home, ENTRY.pipeline) == ENTRY


def test_what_stands_is_left_alone(home: Home, kept: Standing) -> None:
    before = (home.run / f"{ENTRY.pipeline}.json").stat()
    kept.look()
    assert (home.run / f"{ENTRY.pipeline}.json").stat() == before


@pytest.mark.parametrize("gone", [True, False])
def test_a_process_that_was_replaced_writes_over_nobody(
    home: Home, kept: Standing, lease: Lease, gone: bool
) -> None:
    successor = replace(ENTRY, pid=43)
    lease.path.unlink()
    if not gone:
        # Another's signature: its pid counts, whoever signed it here.
        lease.path.write_text("")
    registry.write(home, successor)
    kept.look()
    assert registry.read(home, ENTRY.pipeline) == successor


def test_what_cannot_be_written_is_tried_again_and_told_once(
    home: Home, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    full = True

    def write() -> None:
        if full:
            raise Unavailable("no space left")
        registry.write(home, ENTRY)

    kept = Standing(home.run / f"{ENTRY.pipeline}.json", lease.path, write)
    kept.renew()
    kept.look()
    assert caplog.text.count("no space left") == 1
    full = False
    kept.look()
    assert registry.read(home, ENTRY.pipeline) == ENTRY


async def test_it_is_looked_after_by_itself(
    home: Home, kept: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "LOOK_S", 0.001)
    keeping = asyncio.create_task(kept.keep())
    registry.remove(home, ENTRY.pipeline)
    async with asyncio.timeout(60):
        while registry.read(home, ENTRY.pipeline) is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    keeping.cancel()
