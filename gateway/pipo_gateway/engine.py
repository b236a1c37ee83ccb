"""What the gateway says of its home and the engine, and how it passes on that the engine is to end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pipo import __version__
from pipo.access import Access
from pipo.clock import Clock
from pipo.errors import InvalidState
from pipo.home import Home, engine, registry
from pipo.home.config import Config
from pipo.rpc.stubs import pipo_pb2
from pipo_gateway.attention import Attention

REREAD_S = 0.5
KINDS = ("gateway", "runner", "checker")


@dataclass(slots=True)
class Ports:
    """Where this gateway listens; `grpc` is set once that side serves."""

    http: int
    grpc: int = 0


class Engine:
    """The facts behind `/healthz` and `GET /api/engine`."""

    def __init__(
        self, id: str, home: Home, config: Config, access: Access, clock: Clock, ports: Ports
    ) -> None:
        self.stopping = False
        self.attention = Attention(clock)
        self._id = id
        self._home = home
        self._config = config
        self._access = access
        self._clock = clock
        self._ports = ports
        self._started_at = clock.now_ms()
        self._seen: dict[str, list[str]] = {}
        self._seen_at = -REREAD_S

    def services(self) -> dict[str, list[str]]:
        """The ids of the living services, by kind; at most half a second old."""
        now = self._clock.monotonic()
        if now - self._seen_at >= REREAD_S:
            self._seen_at = now
            found = registry.services(self._home)
            self._seen = {k: sorted(s.id for s in found if s.kind == k) for k in KINDS}
        return self._seen

    def health(self) -> dict[str, Any]:
        """Open to everybody: enough to find the gateway's other door and to see what is there."""
        return {
            "ok": not self.stopping,
            "service": "gateway",
            "id": self._id,
            "home": str(self._home.root),
            "version": __version__,
            "grpc_port": self._ports.grpc,
            "services": self.services(),
            "quiet_ms": int(self.attention.quiet_s * 1000),
        }

    async def message(self) -> pipo_pb2.Engine:
        """The engine as gRPC gives it; of an embedded one what its supervisor says of itself."""
        services = self.services()
        own = await asyncio.to_thread(self._embedded)
        busy = await asyncio.to_thread(engine.busy, self._home)
        stopping = self.stopping or (own is not None and own.stopping)
        return pipo_pb2.Engine(
            engine_id=self._id,
            home=str(self._home.root),
            started_at=self._started_at if own is None else own.started_at,
            ready=not stopping and bool(services["runner"]),
            stopping=stopping,
            pipelines=len(self._access.directory.names()),
            version=__version__,
            grpc_port=self._ports.grpc,
            runners=len(services["runner"]),
            checkers=len(services["checker"]),
            listen=self._ports.http,
            # Whoever asks is under way, too.
            idle=not busy and self.attention.under_way <= 1,
            idle_s=self._config.idle_s,
            ttl_expires_at=None if own is None else own.ttl_expires_at,
        )

    async def stop(self) -> pipo_pb2.StopEngineReply:
        """Asks the engine to drain its pipelines and end; answers at once.

        Raises: InvalidState, where no engine runs these services; as `ask_to_stop`.
        """
        going = await asyncio.to_thread(engine.going, self._home)
        asked = await asyncio.to_thread(engine.ask_to_stop, self._home)
        if asked is None:
            raise InvalidState(
                "these services run by themselves, and no engine is there to stop",
                hint="stop them where they were started, such as with docker compose stop;"
                " pipo stop NAME drains a pipeline",
            )
        return pipo_pb2.StopEngineReply(
            stopped=True,
            already=asked.stopping,
            draining=going.attached,
            detached=going.detached,
        )

    def _embedded(self) -> engine.Engine | None:
        """The engine that this gateway is a service of."""
        return engine.read(self._home) if self._id == engine.INSTANCE else None
