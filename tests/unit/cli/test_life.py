"""An engine's entry, its lifetime, and being asked to end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.home import Home, engine, registry, standing
from pipo.home.config import Config
from pipo.home.engine import Engine
from pipo.home.leases import Lease
from pipo_cli.life import Life

CLOCK = SystemClock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@asynccontextmanager
async def living(home: Home, config: Config) -> AsyncIterator[Life]:
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    life = Life(home, config, CLOCK, foreground=False)
    life.begin()
    try:
        yield life
    finally:
        life.close()
        lease.release()


def entry(home: Home) -> Engine:
    found = engine.read(home)
    assert found is not None
    return found


async def test_its_entry_says_how_it_is_and_goes_with_it(home: Home) -> None:
    """Edge 448: the entry is removed."""
    async with living(home, Config(listen=9000)) as life:
        assert (entry(home).pid, entry(home).listen, entry(home).ready) == (
            os.getpid(),
            9000,
            False,
        )
        life.ready()
        assert (entry(home).ready, entry(home).ttl_expires_at) == (True, None)
        life.stopping()
        assert engine.stopping(home)
        life.going_on()
        assert not engine.stopping(home)
    assert registry.service_entries(home) == []


async def test_its_entry_stands_again_when_somebody_damages_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "LOOK_S", 0.001)
    async with living(home, Config(listen=9000)) as life:
        life.ready()
        (home.services / "engine-embedded.json").write_text("null")
        async with asyncio.timeout(60):
            while engine.read(home) is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert entry(home).ready


async def test_it_is_over_when_somebody_asks(home: Home) -> None:
    async with living(home, Config()) as life:
        over = asyncio.create_task(life.over())
        life.ready()
        await asyncio.sleep(0)
        assert not over.done()
        asked = await asyncio.to_thread(engine.ask_to_stop, home)
        assert asked is not None
        async with asyncio.timeout(60):
            assert await over == "asked"


async def test_its_lifetime_begins_when_it_is_up(home: Home) -> None:
    async with living(home, Config(ttl_s=0.05)) as life:
        over = asyncio.create_task(life.over())
        await asyncio.sleep(0.15)
        assert not over.done()
        before = CLOCK.now_ms()
        life.ready()
        ends_at = entry(home).ttl_expires_at
        assert ends_at is not None
        assert before + 50 <= ends_at <= CLOCK.now_ms() + 50
        async with asyncio.timeout(60):
            assert await over == "ttl"


async def test_an_entry_that_cannot_be_written_holds_up_no_end(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    async with living(home, Config()) as life:
        home.services.rename(home.run / "away")
        life.stopping()
        assert "cannot" in capfd.readouterr().err
        (home.run / "away").rename(home.services)
