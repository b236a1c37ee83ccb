"""The service's shape: stop is safe before start, during it, and twice."""

from __future__ import annotations

import asyncio

import pytest

from pipo.clock import SystemClock
from pipo.errors import BadRequest, Conflict
from pipo.home import Home
from pipo.home.config import Config, TokenSetting
from pipo_gateway.gateway import Gateway


def made(home: Home, config: Config) -> Gateway:
    return Gateway("one", home, config, SystemClock(), lambda port: f"127.0.0.1:{port}")


async def test_stop_before_start(home: Home, config: Config) -> None:
    gateway = made(home, config)
    await gateway.stop()
    await gateway.stop()


@pytest.mark.parametrize("after", range(8))
async def test_stop_during_start_leaves_no_port_open(
    home: Home, config: Config, after: int
) -> None:
    gateway = made(home, config)
    starting = asyncio.get_running_loop().create_task(gateway.start(0))
    for _ in range(after * 3):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    await gateway.stop()
    if gateway.http_address:
        host, _, port = gateway.http_address.partition(":")
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(host, int(port))


async def test_a_taken_port_leaves_nothing_behind(
    home: Home, config: Config, gateway: Gateway
) -> None:
    taken = int(gateway.http_address.rpartition(":")[2])
    second = made(home, config)
    with pytest.raises(Conflict, match=f"port {taken} is taken by the Pipo gateway of"):
        await second.start(taken)
    await second.stop()


async def test_a_token_without_a_value_stops_the_start(home: Home, config: Config) -> None:
    missing = TokenSetting("ci", "env:PIPO_TEST_NOT_SET", "read")
    gateway = made(home, Config(tokens=(missing,)))
    with pytest.raises(BadRequest, match="'ci'"):
        await gateway.start(0)
    await gateway.stop()
