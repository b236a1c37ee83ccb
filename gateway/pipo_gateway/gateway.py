"""The gateway as a service: what it is made of, how it starts and in which order it stops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from aiohttp import web

from pipo.access import Access
from pipo.clock import Clock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, secrets, tokens
from pipo.home.config import Config
from pipo.rpc.server import RunningServer, serve
from pipo.service import ServiceShell
from pipo_gateway.doors import Doors, Principal
from pipo_gateway.engine import Engine, Ports
from pipo_gateway.http_server import HttpServer
from pipo_gateway.ingress.answer import Answer
from pipo_gateway.ingress.budget import Budget
from pipo_gateway.ingress.forward import Ingress
from pipo_gateway.ingress.lanes import Lanes
from pipo_gateway.metrics import Metrics, Traffic
from pipo_gateway.ports import taken
from pipo_gateway.public_rpc import PipoServicer, TokenDoor
from pipo_gateway.refusals import refusal
from pipo_gateway.rest.handlers import Handlers
from pipo_gateway.rest.router import Router
from pipo_gateway.rest.routes import routes

# What requests under way get at a stop before they are told that they are not answered.
GRACE_S = 3.0
CLOSE_S = 2.0
# Probes and scrapers ask for ever; they keep no engine awake.
UNATTENDED = ("/healthz", "/metrics")


class Gateway:
    """Both doors of a home: HTTP and gRPC."""

    def __init__(
        self,
        id: str,
        home: Home,
        config: Config,
        clock: Clock,
        dialable: Callable[[int], str],
    ) -> None:
        self._id = id
        self._home = home
        self._config = config
        self._clock = clock
        self._dialable = dialable
        self._access = Access(home, config, clock)
        self._lanes = Lanes(self._access, clock)
        self._ingress = Ingress(self._lanes, Budget(config.packet_limit_bytes))
        self._traffic = Traffic()
        self._http = HttpServer(self._ingress.answer, self._page, self._traffic)
        self._grpc: RunningServer | None = None
        self._engine: Engine | None = None
        self._router: Router | None = None
        self._stopped = False
        self.address = ""
        self.http_address = ""

    async def start(self, listen: int) -> None:
        """Serves HTTP on `listen` and gRPC on the port above; 0 lets the kernel choose both.

        Raises: Conflict, for a taken port, naming its holder.
        """
        doors = await self._doors()
        bind = self._config.bind
        try:
            await self._http.listen(bind, listen)
        except Conflict as error:
            raise await taken(listen, listen, self._home) from error
        # The servicer needs the engine, and the engine the port: it is filled in below.
        ports = Ports(http=self._http.port)
        engine = Engine(self._id, self._home, self._config, self._access, self._clock, ports)
        grpc_port = listen + 1 if listen else 0
        try:
            self._grpc = await serve(
                PipoServicer(self._access, engine, doors),
                bind=bind,
                port=grpc_port,
                internal_token=None,
                interceptors=[TokenDoor(doors)],
            )
        except Conflict as error:
            await self._http.close(0)
            raise await taken(grpc_port, listen, self._home) from error
        ports.grpc = self._grpc.port
        metrics = Metrics(self._access, self._traffic, self._clock)
        handlers = Handlers(self._access, engine, metrics)
        self._router = Router(routes(handlers), doors, self._config.packet_limit_bytes)
        self._engine = engine
        self.address = self._dialable(ports.grpc)
        self.http_address = self._dialable(ports.http)

    async def stop(self) -> None:
        """Ends both doors. Safe twice and before `start`.

        1. New requests are refused: /healthz says so, /in answers 503.
        2. Requests under way get up to 3 s for their answers.
        3. The lanes end: what is still not answered is told that it may have been accepted.
        4. Both servers close, then the channels behind them.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._engine is not None:
            self._engine.stopping = True
        self._ingress.stopping = True
        self._http.refuse_new()
        await self._lanes.quiet(GRACE_S)
        await self._lanes.close()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._http.close(CLOSE_S), name="close http")
            if self._grpc is not None:
                group.create_task(self._grpc.stop(CLOSE_S), name="close grpc")
        await self._access.close()

    async def _page(self, request: web.BaseRequest, target: str) -> Answer:
        if self._router is None or self._engine is None:
            return refusal(Unavailable("the gateway is starting", hint="try again in a moment"))
        if target.startswith(UNATTENDED):
            return await self._router.answer(request, target)
        with self._engine.attention.given():
            return await self._router.answer(request, target)

    async def _doors(self) -> Doors:
        admin = tokens.admin_token(self._home)
        settings = self._config.tokens
        refs = {setting.name: setting.token for setting in settings}
        values = await asyncio.to_thread(secrets.resolve, refs, os.environ)
        known = [
            (
                Principal(
                    setting.name,
                    setting.scope,
                    None if setting.pipelines is None else frozenset(setting.pipelines),
                ),
                values[setting.name],
            )
            for setting in settings
        ]
        return Doors(self._config.bind, known, admin)


async def start(listen: int | None, shell: ServiceShell) -> Gateway:
    """The started gateway of a service shell."""
    gateway = Gateway(shell.id, shell.home, shell.config, shell.clock, shell.dialable)
    try:
        await gateway.start(shell.config.listen if listen is None else listen)
    except BaseException:
        await gateway.stop()
        raise
    return gateway
