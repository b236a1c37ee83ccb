"""What a run stands on: its versions with their secrets, its steps and its destinations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import Context, Step
from pipo.errors import BadRequest, InvalidState
from pipo.home import Home
from pipo.home.config import Config
from pipo.journal import versions
from pipo.journal.changes import Change, Marked, Paused, Started
from pipo.journal.sqlite_journal import Recovery, SqliteJournal
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.definition.secret_values import SecretValues
from pipo_runner.pipeline.definition.versions import Definition, Edition, Plans, begin
from pipo_runner.pipeline.output.outputs import Outputs
from pipo_runner.pipeline.steps.functions import Functions
from pipo_runner.pipeline.steps.steps import FUNCTION, Steps


class Ground:
    """Everything that packets need on their way. Use: `open`, any of the others, `close`."""

    plans: Plans
    scopes: Scopes

    def __init__(
        self,
        name: str,
        definition: Definition,
        *,
        home: Home,
        config: Config,
        clock: Clock,
        journal: SqliteJournal,
        redactor: Redactor,
        log: Callable[..., None],
    ) -> None:
        self._name = name
        self._definition = definition
        self._home = home
        self._config = config
        self._clock = clock
        self._journal = journal
        self._redactor = redactor
        self._log = log
        self._secrets = SecretValues(os.environ, redactor.add)
        self._steps = Steps(self._build_step)
        self._functions = Functions(
            self.context(),
            concurrency=definition.pipeline.concurrency,
            env_allow=config.env_allow,
        )
        self.outputs = Outputs(lambda name: connectors.build_output(name, self.context()))

    def context(self, folder: Path | None = None) -> Context:
        """The connectors' view of the pipeline; `folder` is what their paths mean."""
        return Context(
            pipeline=self._name,
            folder=folder or self._definition.folder,
            clock=self._clock,
            log=self._log,
            packet_limit=self._config.packet_limit_bytes,
            home=self._home,
            mask=self._redactor.text,
            hide=self._redactor.add,
        )

    async def open(self, recovery: Recovery, *, at: int, ttl: str | None) -> None:
        """The run begins: its start is on disk on return. `ttl` is the override that it was given.

        Order: 1 version and its secrets, 2 the start, 3 destinations, 4 steps.
        Raises: PipoError, ConnectorError; for a version or its secrets before the start.
        """
        await self._begin(recovery, at, ttl)
        await self.outputs.open(self.plans.outputs(), await self._marks(recovery))
        self.outputs.require(self.plans.current())
        await self._steps.open()
        self._steps.require(self.plans.edition(self.plans.current().version))

    async def _begin(self, recovery: Recovery, at: int, ttl: str | None) -> None:
        """The version in force, and the plans of those that pending packets are pinned to.

        The version and the start are one commit, behind everything that could refuse them.
        """
        rows = self._journal.rows
        beginning = begin(
            self._definition,
            await versions.latest(rows),
            await versions.last_start(rows),
            connectors.manifests(),
            at,
        )
        edition = beginning.edition
        allowed = {k: os.environ[k] for k in self._config.env_allow if k in os.environ}
        secrets = self._secrets.of(edition.pipeline.secrets)
        self.scopes = Scopes(self._name, env=allowed, secrets=secrets)
        self.plans = Plans(
            connectors.manifests(),
            edition.folder,
            self._steps.of,
            files=self._home.pipeline(self._name).files,
            admit=partial(self._admit, self.scopes),
        )
        self.plans.put_in_force(edition)
        await self.plans.add_older({unit.version for unit in recovery.units}, self._version)
        changes: list[Change] = [] if beginning.added is None else [beginning.added]
        changes.append(
            Started(
                edition.version,
                recovery.packets,
                at,
                ttl=ttl,
                file_hash=self._definition.hash,
            )
        )
        if recovery.pause_reason is not None:
            changes.append(Paused(recovery.pause_reason, at, restored=True))
        await self._journal.commit(*changes)

    async def _admit(self, scopes: Scopes, edition: Edition) -> None:
        """An older version's packets see the secrets that it declares."""
        try:
            values = await asyncio.to_thread(self._secrets.of, edition.pipeline.secrets)
        except BadRequest as error:
            raise InvalidState(
                f"packets of v{edition.version} wait, and {error.message}", hint=error.hint
            ) from error
        scopes.keep(edition.version, values)

    async def _marks(self, recovery: Recovery) -> Mapping[str, int]:
        """The output's notes; without pending units nothing is uncertain, and none is needed."""
        if not recovery.units and recovery.marks:
            await self._journal.commit(Marked(dict.fromkeys(recovery.marks)))
            return {}
        return recovery.marks

    def _build_step(self, role: str, name: str, edition: Edition) -> Step:
        if name.startswith(FUNCTION):
            return self._functions.step(role, name, edition)
        context = self.context(edition.folder)
        return connectors.build_step("tap" if role == "tap" else "transform", name, context)

    async def prepare(self, wanted: set[int]) -> None:
        """Makes ready what packets of these versions need. Raises: PipoError, ConnectorError."""
        await self.plans.add_older(wanted, self._version)
        await self._steps.open()
        await self.outputs.open(self.plans.outputs(), {})

    async def make_ready(self, plan: Plan) -> None:
        """Opens what a version's packets need. Raises: PipoError, ConnectorError."""
        await self._steps.open()
        self._steps.require(self.plans.edition(plan.version))
        await self.outputs.open(self.plans.outputs(), {})
        self.outputs.require(plan)

    async def _version(self, version: int) -> versions.Version | None:
        return await versions.one(self._journal.rows, version)

    async def close(self, *, rested: bool) -> None:
        """Lets everything go. `rested`: no step and no write is in hand any more.

        Else a destination holds a write up, and closing it would wait for that: it is left
        as a kill leaves it, and the keys tell the next start what was written (O074).
        """
        await self._functions.close()
        if rested:
            await self.outputs.close()
            await self._steps.close()
