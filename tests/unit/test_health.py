from __future__ import annotations

import aiohttp
import pytest

from pipo import __version__
from pipo.errors import Conflict
from pipo.health import HealthListener


def listener() -> HealthListener:
    return HealthListener("checker", "c1", facts=lambda: {"held": 3}, metrics=lambda: b"up 1\n")


async def test_tells_its_health_and_its_metrics() -> None:
    made = listener()
    await made.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{made.port}") as session:
            answer = await session.get("/healthz")
            assert answer.status == 200
            assert await answer.json() == {
                "ok": True,
                "service": "checker",
                "id": "c1",
                "version": __version__,
                "held": 3,
            }
            metrics = await session.get("/metrics")
            assert await metrics.text() == "up 1\n"
            assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            made.healthy = False
            assert (await session.get("/healthz")).status == 503
            assert (await session.get("/other")).status == 404
    finally:
        await made.stop()
        await made.stop()


async def test_a_taken_port_is_a_conflict_with_the_flag() -> None:
    first, second = listener(), listener()
    await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(Conflict, match=f"127.0.0.1:{first.port} is taken") as refused:
            await second.start("127.0.0.1", first.port)
        assert "--http-port" in refused.value.hint
    finally:
        await first.stop()
