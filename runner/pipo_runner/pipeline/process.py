"""One pipeline process: what it is made of, its start, its three ends.

The parts know nothing of each other beyond what they are given here. This file
holds the order of things and no rule about packets.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import (
    Context,
    Input,
    InputContext,
    InputSpec,
    PureStep,
    Settlement,
)
from pipo.errors import Internal
from pipo.home import Home, registry, secrets
from pipo.home.config import Config
from pipo.home.registry import Entry
from pipo.journal import reads
from pipo.journal.changes import Change, Delivered, Draining, Started, Stopped
from pipo.journal.sqlite_journal import PendingUnit, Recovery, SqliteJournal
from pipo.lang.model import Pipeline
from pipo.payload import decode
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo.telemetry.logs import logger, mask
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.admission import Admission
from pipo_runner.pipeline.executor import Executor
from pipo_runner.pipeline.http_door import BODIES_LIMIT, BodyBudget, HttpDoor
from pipo_runner.pipeline.ids import PacketIds
from pipo_runner.pipeline.intake import PipelineIntake
from pipo_runner.pipeline.measures import Measures
from pipo_runner.pipeline.plan import Plan
from pipo_runner.pipeline.pushing import Pushes
from pipo_runner.pipeline.rates import MinuteRate
from pipo_runner.pipeline.recovery import Decision, Finding, decide, unit_of
from pipo_runner.pipeline.scopes import Scopes
from pipo_runner.pipeline.servicer import PipelineServicer
from pipo_runner.pipeline.settling import Pending
from pipo_runner.pipeline.timers import Timers
from pipo_runner.pipeline.units import UNLOADED, VERIFY, Unit
from pipo_runner.pipeline.verification import Verifications
from pipo_runner.pipeline.versions import Definition, Plans, next_version
from pipo_runner.pipeline.writing import SETTLED_BY_WRITE, OutputStage
from pipo_runner.spec import ProcessSpec

# How long a stop waits for requests that are being answered (edge 37).
REQUESTS_GRACE_S = 2.0
NOW_GRACE_S = 2.0
""" `stop --now` waits this long for a write in flight (decision 2)."""


@dataclass(frozen=True, slots=True)
class End:
    """Why and how the process ends."""

    kind: str
    """`drain`, `now` or `suspend`."""
    reason: str


class PipelineProcess:
    """A pipeline that runs. Use: `start`, then `run_to_end`."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        home: Home,
        config: Config,
        clock: Clock,
        definition: Definition,
        journal: SqliteJournal,
        internal_token: str,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._home = home
        self._config = config
        self._clock = clock
        self._definition = definition
        self._journal = journal
        self._log = logger("pipeline")
        self._started_at = clock.now_ms()
        self._token = internal_token
        self.pid = os.getpid()
        self._began = clock.monotonic()
        self._status = "starting"
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._crash: BaseException | None = None
        self._harder: End | None = None
        self._timers = Timers(self._crashed)
        self._rate = MinuteRate()
        self._budget = BodyBudget(BODIES_LIMIT * config.packet_limit_bytes)
        self._inputs: list[Input] = []
        self._server: RunningServer | None = None
        self._http: Any = None

    # ── start ────────────────────────────────────────────────────────────────

    async def start(self) -> str:
        """Serves when it returns; the address that others dial.

        Raises: PipoError for whatever the pipeline's author or operator can mend.
        """
        pipeline = self._definition.pipeline
        resolved = secrets.resolve(pipeline.secrets, os.environ)
        self._redactor = Redactor(resolved.values())
        mask(self._redactor)
        env = {k: os.environ[k] for k in self._config.env_allow if k in os.environ}
        scopes = Scopes(self.name, env=env, secrets=resolved)
        recovery = await self._journal.recover()
        plans = Plans(connectors.manifests(), self._folder, self._build_step)
        await self._resume_versions(plans, recovery, pipeline)
        self._plans = plans
        self._output = connectors.build_output(pipeline.output.to, self._context())
        await self._output.open(recovery.marks)
        self._assemble(pipeline, scopes, recovery)
        await self._take_up(recovery.units)
        self._server = await serve(
            PipelineServicer(self),
            bind=self._spec.bind,
            port=0,
            internal_token=self._token,
            redact=self._redactor.text,
        )
        await self._open_inputs(pipeline, scopes)
        self._status = "active"
        address = f"{self._spec.advertise}:{self._server.port}"
        registry.write(self._home, self._entry(address))
        self._admission.open()
        self._executor.open()
        self._journal.failed.add_done_callback(self._journal_failed)
        self._log.info(
            "pipeline started",
            action="pipeline_started",
            version=self.version,
            resumed=len(recovery.units),
            address=address,
        )
        return address

    @property
    def _folder(self) -> Path:
        return self._definition.file.parent

    def _build_step(self, role: str, name: str) -> PureStep:
        step = connectors.build_step("tap" if role == "tap" else "transform", name, self._context())
        assert step.pure, f"{role} {name} reaches outside"
        return step

    def _context(self) -> Context:
        return Context(
            pipeline=self.name,
            folder=self._folder,
            clock=self._clock,
            log=self._connector_log,
            packet_limit=self._config.packet_limit_bytes,
        )

    def _connector_log(self, level: str, message: str, **keys: Any) -> None:
        getattr(self._log, level)(message, **keys)

    async def _resume_versions(self, plans: Plans, recovery: Recovery, pipeline: Pipeline) -> None:
        """Puts the file's version in force and makes the plans of pending packets."""
        at = self._clock.now_ms()
        newest = await reads.latest_version(self._journal.rows)
        added = next_version(
            self._definition, None if newest is None else (newest.version, newest.hash), at
        )
        version = added.version if added is not None else (newest.version if newest else 1)
        plans.put_in_force(pipeline, version)
        await plans.add_older({unit.version for unit in recovery.units}, self._version_source)
        changes: list[Change] = [] if added is None else [added]
        changes.append(Started(version, len(recovery.units), at))
        await self._journal.commit(*changes)

    async def _version_source(self, version: int) -> str | None:
        return await reads.version_source(self._journal.rows, version)

    def _assemble(self, pipeline: Pipeline, scopes: Scopes, recovery: Recovery) -> None:
        self._pending = Pending(self._settlement)
        self._admission = Admission(buffer_max=pipeline.buffer_max, pending=len(recovery.units))
        self._pending.on_settled = self._settled
        common: dict[str, Any] = {
            "journal": self._journal,
            "scopes": scopes,
            "pending": self._pending,
            "timers": self._timers,
            "clock": self._clock,
            "redact": self._redactor.text,
            "log": self._connector_log,
        }
        self._executor = Executor(
            **common,
            plan_of=self._plans.of,
            concurrency=pipeline.concurrency,
            load=self._load,
        )
        role = connectors.manifests()[pipeline.output.to].output
        assert role is not None
        self.verifications = Verifications(
            **common, executor=self._executor, output_role=role, load=self._load
        )
        self._writing = OutputStage(
            **common,
            output=self._output,
            executor=self._executor,
            verify=self.verifications.add,
            serial=pipeline.concurrency == 1,
        )
        self._executor.output = self._writing
        self._scopes = scopes
        self._intake = PipelineIntake(
            journal=self._journal,
            admission=self._admission,
            pending=self._pending,
            plan=self._plans.current,
            scopes=scopes,
            ids=PacketIds(),
            clock=self._clock,
            enqueue=self._executor.enqueue,
            next_queue_seq=recovery.next_queue_seq,
            packet_limit=self._config.packet_limit_bytes,
            redact=self._redactor.text,
            input_state=self._input_state,
            on_accepted=self._rate.add,
        )
        self.pushes = Pushes(
            name=self.name,
            inputs=pipeline.inputs,
            intake=self._intake,
            packet_limit=self._config.packet_limit_bytes,
            timers=self._timers,
        )
        self.measures = Measures(self._journal, self._pending)
        self._journal.commit_observer = self.measures.committed

    def _settled(self, ended: list[Unit], settlement: Settlement) -> None:
        self._admission.give_back(len(ended))
        if settlement.state == "delivered":
            now = self._clock.now_ms()
            for unit in ended:
                self.measures.delivered((now - unit.received_at) / 1000.0)

    async def _open_inputs(self, pipeline: Pipeline, scopes: Scopes) -> None:
        from pipo_runner.pipeline.rendering import Settings

        kinds: dict[str, list[InputSpec]] = {}
        for entry in pipeline.inputs:
            role = connectors.manifests()[entry.via].input
            assert role is not None
            settings = Settings(entry.settings, role.schema, self._folder).render(scopes.inputs())
            kinds.setdefault(entry.via, []).append(
                InputSpec(entry.name, settings, entry.format, entry.on_invalid.respond)
            )
        context = InputContext(
            pipeline=self.name,
            folder=self._folder,
            clock=self._clock,
            log=self._connector_log,
            packet_limit=self._config.packet_limit_bytes,
            intake=self._intake,
        )
        for via, specs in kinds.items():
            made = connectors.build_inputs(via, specs, context)
            self._inputs.append(made)
            if hasattr(made, "answer"):
                self._http = made
        for made in self._inputs:
            await made.open()

    def _entry(self, address: str) -> Entry:
        return Entry(
            pipeline=self.name,
            version=self.version,
            pid=self.pid,
            host=socket.gethostname(),
            address=address,
            listen=None,
            ttl=None,
            state="running",
            status=self._status,
            started_at=self._started_at,
            runner=self._spec.runner_id,
            file=str(self._definition.file),
            restarts=self._spec.restarts,
        )

    # ── recovery ─────────────────────────────────────────────────────────────

    async def _take_up(self, found: list[PendingUnit]) -> None:
        """Every pending unit goes on as `recovery` decides."""
        delivered: list[str] = []
        rows: Counter[str] = Counter()
        for row in found:
            unit, plan = unit_of(row), self._plans.of(row.version)
            self._pending.add(unit)
            left_ms = (unit.retry_at or 0) - self._clock.now_ms()
            finding = Finding(
                written=unit.cursor == VERIFY,
                settled_by_write=plan.check in SETTLED_BY_WRITE,
                wait_left=left_ms > 0,
            )
            decided = decide(finding)
            rows[decided.label] += 1
            match decided.decision:
                case Decision.RUN:
                    self._executor.enqueue(unit)
                case Decision.WAIT:
                    self._timers.after(left_ms / 1000.0, self._executor.enqueue, unit)
                case Decision.DELIVER:
                    delivered.append(unit.id)
                case Decision.VERIFY:
                    await self._verify_again(unit, plan, row.result or b"null")
        if delivered:
            at = self._clock.now_ms()
            await self._journal.commit(*(Delivered(one, None, at) for one in delivered))
            self._pending.settled(delivered, Settlement("delivered"))
        if found:
            self._log.info("resuming packets", action="resuming", units=len(found), **rows)

    async def _verify_again(self, unit: Unit, plan: Plan, result: bytes) -> None:
        """A written unit is not written again: its check starts anew (edge 207)."""
        await self._load(unit)
        settings = plan.output_settings.render(
            self._scopes.step(unit, "output", with_meta=False)
            | {"meta": self._scopes.meta(unit, "output", key=unit.key)}
        )
        await self._output.recover(settings)
        self.verifications.add(unit, plan, settings, result)

    async def _load(self, unit: Unit) -> None:
        """Brings a payload back that was left in the journal."""
        if unit.data is UNLOADED:
            raw = await reads.data_of(self._journal.rows, unit.id)
            if raw is None:
                raise Internal(f"the journal has no data of {unit.id}", hint="please report this")
            unit.data = decode(raw)

    async def _input_state(self, input_name: str) -> Mapping[str, str]:
        return await reads.input_state(self._journal.rows, input_name)

    async def _settlement(self, packet_id: str) -> Settlement:
        found = await reads.state_of(self._journal.rows, packet_id)
        return Settlement("accepted" if found is None else found)

    # ── what others ask ──────────────────────────────────────────────────────

    @property
    def journal(self) -> reads.Source:
        return self._journal

    @property
    def version(self) -> int:
        return self._plans.current().version

    @property
    def status(self) -> str:
        return self._status

    def door(self, peer: str) -> HttpDoor:
        """A gateway's stream of HTTP requests."""
        return HttpDoor(
            self._http,
            packet_limit=self._config.packet_limit_bytes,
            budget=self._budget,
            timers=self._timers,
            name=peer,
            on_error=lambda error: self._log.error("a request failed", exc_info=error),
        )

    async def info(self) -> pipo_pb2.PipelineInfo:
        """The pipeline as `pipo status` shows it."""
        return await self.measures.info(
            self._entry(""),
            plan=self._plans.current(),
            checkers=self.verifications.checkers,
            verifying=len(self.verifications),
            in_per_min=self._rate.total(self._clock.now_ms()),
            uptime_s=int(self._clock.monotonic() - self._began),
            now_ms=self._clock.now_ms(),
            routes=self._http.routes() if self._http is not None else [],
        )

    def metrics(self) -> list[pipeline_pb2.MetricSeries]:
        return self.measures.series(
            status=self._status,
            checkers=self.verifications.checkers,
            refused=self._admission.refused,
        )

    # ── the ends ─────────────────────────────────────────────────────────────

    def ask_to_stop(self, *, now: bool) -> pipo_pb2.StopReply:
        """Begins a stop (design §2, three ends); the answer goes out before it takes effect."""
        already = self._end.done()
        self.end(End("now", "stop") if now else End("drain", "stop"))
        state = "stopping" if now else "draining"
        return pipo_pb2.StopReply(pipeline=self.name, state=state, already=already)

    def end(self, end: End) -> None:
        """Asks for an end. A second request may only be a harder one."""
        if not self._end.done():
            self._end.set_result(end)
        elif end.kind != "drain":
            self._harder = end
            self._pending.give_up_waiting()

    async def run_to_end(self) -> int:
        """Waits for an end and carries it out; the exit code."""
        end = await self._end
        if self._crash is not None:
            raise self._crash
        drained = True
        if end.kind == "drain":
            drained = await self._drain()
            end = self._harder or end
        await self._close(end)
        self._log.info("pipeline stopped", action="pipeline_stopped", reason=end.reason)
        if not drained and end.kind == "drain":
            self._log.warning("the drain timed out", pending=len(self._pending))
        return 0

    async def _drain(self) -> bool:
        """Intake ends and what was accepted is worked off; False at the time limit."""
        self._status = "draining"
        self._admission.close("draining")
        await self._close_inputs()
        await self._journal.commit(Draining(self._clock.now_ms()))
        lifetime = self._plans.current().pipeline.lifetime
        timeout_ms = 120_000.0 if lifetime is None else lifetime.drain_timeout_ms
        return await self._pending.emptied(timeout_ms / 1000.0)

    async def _close(self, end: End) -> None:
        """Order: 1 intake, 2 steps in hand, 3 waits given back, 4 the last event,
        5 server, 6 destination, 7 journal, 8 registry."""
        self._status = "stopping"
        self._admission.close("stopped")
        await self._close_inputs()
        self._executor.close()
        self._timers.cancel_waits()
        grace_s = NOW_GRACE_S if end.kind == "now" else self._config.stop_timeout_s
        await self._writing.idle(grace_s)
        self._pending.release_waits()
        await self._journal.commit(Stopped(end.reason, self._clock.now_ms()))
        if self._server is not None:
            await self._server.stop(REQUESTS_GRACE_S)
        await self._timers.close(REQUESTS_GRACE_S)
        await self._output.close()
        await self._journal.close(clean=True)
        registry.remove(self._home, self.name)

    async def _close_inputs(self) -> None:
        for made in self._inputs:
            await made.close()

    def _crashed(self, error: BaseException) -> None:
        """A background part failed in a way that is a bug: the process starts anew from disk."""
        self._log.error("a part of the pipeline failed", exc_info=error)
        if self._crash is None:
            self._crash = error
        if not self._end.done():
            self._end.set_result(End("now", "crashed"))

    def _journal_failed(self, failed: asyncio.Future[BaseException]) -> None:
        if not failed.cancelled():
            self._crashed(failed.result())
