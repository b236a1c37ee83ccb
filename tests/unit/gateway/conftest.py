from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from pipo.clock import SystemClock
from pipo.home import Home
from pipo.home.config import Config
from pipo_gateway.gateway import Gateway
from tests.unit.gateway.fake_pipeline import FakePipeline

LIMIT = 4 * 1024 * 1024


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(packet_limit_bytes=LIMIT, workspace=tmp_path)


@pytest_asyncio.fixture
async def pipeline(home: Home) -> AsyncIterator[FakePipeline]:
    made = await FakePipeline().start(home)
    yield made
    await made.die()


@pytest_asyncio.fixture
async def gateway(home: Home, config: Config) -> AsyncIterator[Gateway]:
    made = Gateway("one", home, config, SystemClock(), lambda port: f"127.0.0.1:{port}")
    await made.start(0)
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def client(gateway: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{gateway.http_address}") as session:
        yield session
