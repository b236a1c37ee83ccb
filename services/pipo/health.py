"""The small HTTP listener of a service that has no other: /healthz and /metrics."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from pipo import __version__
from pipo.errors import Conflict
from pipo.telemetry.metrics import CONTENT_TYPE


class HealthListener:
    """Answers GET /healthz (200, or 503 once `healthy` is False) and GET /metrics.

    `facts` adds to the health answer; `metrics` is the Prometheus text. Both are
    called per request and must be quick.
    """

    def __init__(
        self,
        kind: str,
        id: str,
        *,
        facts: Callable[[], Mapping[str, Any]],
        metrics: Callable[[], bytes],
    ) -> None:
        self.healthy = True
        self.port = 0
        self._facts = facts
        self._metrics = metrics
        self._same = {"service": kind, "id": id, "version": __version__}
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(
            app, handle_signals=False, access_log=None, shutdown_timeout=1.0
        )

    async def start(self, bind: str, port: int) -> None:
        """Listens; `port` is then the one that it has.

        Raises: Conflict, if the port is taken.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, bind, port).start()
        except OSError as error:
            await self._runner.cleanup()
            if error.errno != errno.EADDRINUSE:
                raise
            raise Conflict(
                f"the port {bind}:{port} is taken",
                hint="end the process that listens there, or take another with --http-port",
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.healthy = False
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        body = {"ok": self.healthy, **self._same, **self._facts()}
        return web.Response(
            body=msgspec.json.encode(body),
            status=200 if self.healthy else 503,
            content_type="application/json",
        )

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
