"""One runner host as a service: its parts, its start, its stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from pipo.connectors import registry as connectors
from pipo.connectors.contract import ConnectorError, Manifest
from pipo.errors import InvalidState, PipoError
from pipo.health import HealthListener
from pipo.home import tokens
from pipo.rpc.server import RunningServer, serve
from pipo.service import ServiceShell
from pipo.telemetry.metrics import render
from pipo_runner.host.calls import PipelineCalls
from pipo_runner.host.last_word import last_word
from pipo_runner.host.numbers import families
from pipo_runner.host.reaper import Reaper
from pipo_runner.host.servicer import RunnerServicer
from pipo_runner.host.spawning import ForkServer
from pipo_runner.host.supervisor import Supervisor
from pipo_runner.host.surroundings import PIPELINE_ENTRY, Surroundings
from pipo_runner.host.targets import drain_s, resolve

# Pipelines bound their suspension by engine.stop_timeout; this is for what goes beyond it.
SUSPEND_MARGIN_S = 1.0
_CALLS_GRACE_S = 0.5


class RunnerHost:
    """A host that is ready."""

    def __init__(
        self, shell: ServiceShell, forkserver: ForkServer, *, entry: str = PIPELINE_ENTRY
    ) -> None:
        self.address = ""
        self.http_address = ""
        self._shell = shell
        self._forkserver = forkserver
        self._reaper = Reaper()
        token = tokens.internal_token(shell.home)
        self._token = token
        manifests = _manifests()
        self._supervisor = Supervisor(
            Surroundings(
                home=shell.home,
                runner_id=shell.id,
                config=shell.config,
                clock=shell.clock,
                environ=os.environ,
                spawn=self._forkserver.spawn,
                calls=PipelineCalls(token),
                last_word=last_word,
                resolve=partial(
                    resolve,
                    home=shell.home,
                    workspace=shell.config.workspace,
                    manifests=manifests,
                    uploaded_code=shell.config.allow_uploaded_code,
                ),
                drain_s=partial(drain_s, home=shell.home, manifests=manifests),
                outlived=os.getpid() != 1,
                entry=entry,
            )
        )
        self._server: RunningServer | None = None
        self._health = HealthListener("runner", shell.id, facts=self._facts, metrics=self._numbers)

    async def start(self, port: int, http_port: int) -> None:
        """Serves on return, and is taking over what should run.

        Raises: PipoError, for a taken port or a forkserver that does not come up.
        """
        await self._forkserver.start()
        self._reaper.start()
        bind = self._shell.config.bind
        try:
            await self._health.start(bind, http_port)
            self._server = await serve(
                RunnerServicer(self._supervisor, self._shell.home),
                bind=bind,
                port=port,
                internal_token=self._token,
            )
        except PipoError:
            await self.stop()
            raise
        self.address = self._shell.dialable(self._server.port)
        self.http_address = self._shell.dialable(self._health.port)
        await self._supervisor.open()

    async def stop(self) -> None:
        """Suspends. Safe twice.

        1. Own pipelines suspend, adopted ones are let go. 2. gRPC and HTTP end.
        3. The forkserver ends; a pipeline that did not make it lives on.
        """
        self._health.healthy = False
        try:
            limit_s = self._shell.config.stop_timeout_s + SUSPEND_MARGIN_S
            await self._supervisor.suspend(limit_s)
        finally:
            if self._server is not None:
                await self._server.stop(_CALLS_GRACE_S)
            await self._health.stop()
            self._reaper.stop()
            await self._forkserver.stop()

    def _facts(self) -> dict[str, object]:
        return {"pipelines": len(self._supervisor.supervised), "forkserver": self._forkserver.pid}

    def _numbers(self) -> bytes:
        supervised = self._supervisor.supervised
        return render(
            families(
                [one.state for one in supervised],
                crash_restarts=self._supervisor.crash_restarts,
                children=sum(one.own for one in supervised),
            )
        )


async def start(
    forkserver: ForkServer, port: int, http_port: int, shell: ServiceShell
) -> RunnerHost:
    """A runner host that is ready."""
    host = RunnerHost(shell, forkserver)
    await host.start(port, http_port)
    return host


def _manifests() -> Mapping[str, Manifest]:
    try:
        return connectors.manifests()
    except ConnectorError as error:
        raise InvalidState(error.message, hint=error.hint) from error
