"""What the gateway says of itself and its home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipo import __version__
from pipo.access import Access
from pipo.clock import Clock
from pipo.home import Home, registry
from pipo.home.config import Config
from pipo.rpc.stubs import pipo_pb2
from pipo.rpc.to_json import to_value

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
        }

    def message(self) -> pipo_pb2.Engine:
        """The engine as gRPC gives it."""
        services = self.services()
        return pipo_pb2.Engine(
            engine_id=self._id,
            home=str(self._home.root),
            started_at=self._started_at,
            ready=not self.stopping and bool(services["runner"]),
            stopping=self.stopping,
            pipelines=len(self._access.directory.names()),
            version=__version__,
            grpc_port=self._ports.grpc,
            runners=len(services["runner"]),
            checkers=len(services["checker"]),
        )

    def answer(self) -> dict[str, Any]:
        """The engine as REST gives it."""
        return {
            **to_value(self.message()),
            "listen": self._ports.http,
            "idle_s": self._config.idle_s,
            "ttl_expires_at": None,
        }
