"""One pipeline process: its start and its three ends, in order.

The parts know nothing of each other beyond what `assembly` gives them. This file
holds the order of things and no rule about packets.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipo import collector
from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import BotReader, Context, HttpInput, Input, InputContext, Step
from pipo.errors import BadRequest, InvalidState, Unavailable
from pipo.home import Home, registry
from pipo.home.config import Config
from pipo.home.registry import Entry
from pipo.journal import reads, versions
from pipo.journal.changes import (
    RESTARTED,
    Change,
    Draining,
    Failed,
    Marked,
    Paused,
    Started,
    Stopped,
)
from pipo.journal.clean_up import CleanUp
from pipo.journal.sqlite_journal import LISTENER_RAISED, Recovery, SqliteJournal
from pipo.lang.model import Pipeline
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo.telemetry.logs import logger, mask
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.acks import Acks
from pipo_runner.pipeline.applying import Applying
from pipo_runner.pipeline.assembly import (
    Parts,
    Surroundings,
    assemble,
    build_inputs,
    dead_letters,
    reruns,
    resolutions,
)
from pipo_runner.pipeline.body_budget import BODIES_LIMIT, BodyBudget
from pipo_runner.pipeline.downstream import Downstream
from pipo_runner.pipeline.functions import Functions
from pipo_runner.pipeline.handing import HandOvers
from pipo_runner.pipeline.http_door import HttpDoor
from pipo_runner.pipeline.operations import DeadLetters
from pipo_runner.pipeline.orders import Orders
from pipo_runner.pipeline.outputs import Outputs
from pipo_runner.pipeline.pausing import MANUAL, REQUESTED
from pipo_runner.pipeline.plan import Plan
from pipo_runner.pipeline.pushing import Pushes
from pipo_runner.pipeline.reruns import Reruns
from pipo_runner.pipeline.resolving import Resolutions
from pipo_runner.pipeline.resuming import loader, take_up
from pipo_runner.pipeline.scopes import Scopes
from pipo_runner.pipeline.secret_values import SecretValues
from pipo_runner.pipeline.servicer import PipelineServicer
from pipo_runner.pipeline.steps import FUNCTION, Steps
from pipo_runner.pipeline.tidying import Tidying
from pipo_runner.pipeline.timers import Timers
from pipo_runner.pipeline.verification import Verifications
from pipo_runner.pipeline.versions import Definition, Edition, Plans, begin
from pipo_runner.spec import ProcessSpec

# How long a stop waits for requests that are being answered (edge 37).
REQUESTS_GRACE_S = 2.0
# `stop --now` waits this long for a write in flight (decision 2).
NOW_GRACE_S = 2.0
DRAIN_TIMEOUT_MS = 120_000.0


@dataclass(frozen=True, slots=True)
class End:
    """How the process ends, and the journaled reason: `drain`, `now` or `suspend` (design §2),
    or `halt`, when a policy asks for it (edge 140)."""

    kind: str
    reason: str


class PipelineProcess:
    """A pipeline that runs. Use: `start`, then `run_to_end`."""

    parts: Parts
    dead_letters: DeadLetters
    reruns: Reruns
    resolutions: Resolutions
    applying: Applying

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
        self.pid = os.getpid()
        self._spec = spec
        self._home = home
        self._config = config
        self._clock = clock
        self._definition = definition
        self._journal = journal
        self._token = internal_token
        self._log = logger("pipeline")
        self._started_at = clock.now_ms()
        self._status = "starting"
        self._address = ""
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._harder: End | None = None
        self._crash: BaseException | None = None
        self._timers = Timers(self._crashed)
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        self._budget = BodyBudget(BODIES_LIMIT * config.packet_limit_bytes)
        self._inputs: list[Input] = []
        self._http: HttpInput | None = None
        self._bots: list[str] = []
        self._server: RunningServer | None = None
        self._tidying = Tidying(
            CleanUp(journal, clock),
            lambda: self._plans.current().pipeline.retention,
            timers=self._timers,
            log=self._connector_log,
        )

    # ── start ────────────────────────────────────────────────────────────────

    async def start(self) -> str:
        """Serves when it returns; the address that others dial.

        Order: 1 journal, 2 version and its secrets, 3 destination and steps, 4 what an earlier run
        left, 5 server, 6 inputs, 7 registry; only then are packets taken.
        Raises: PipoError for whatever the pipeline's author or operator can mend.
        """
        self._redactor = redactor = Redactor()
        mask(redactor)
        self._secrets = SecretValues(os.environ, redactor.add)
        env = {k: os.environ[k] for k in self._config.env_allow if k in os.environ}
        recovery = await self._journal.recover()
        self._steps = Steps(self._build_step)
        self._functions = Functions(
            self._context(),
            concurrency=self._definition.pipeline.concurrency,
            env_allow=self._config.env_allow,
        )
        scopes, pipeline = await self._versions(recovery, env)
        self._outputs = Outputs(lambda name: connectors.build_output(name, self._context()))
        await self._outputs.open(self._plans.outputs(), await self._marks(recovery))
        self._outputs.require(self._plans.current())
        await self._steps.open()
        self._steps.require(self._plans.edition(self._plans.current().version))
        around = Surroundings(
            journal=self._journal,
            scopes=scopes,
            plans=self._plans,
            output_of=self._outputs.of,
            timers=self._timers,
            clock=self._clock,
            context=self._context(),
            redact=redactor.text,
            load=loader(self._journal),
            budget=self._budget,
        )
        self.parts = assemble(pipeline, around, recovery)
        orders = Orders(self._journal, self._timers)
        self.dead_letters = dead_letters(
            self.name,
            around,
            self.parts,
            orders,
            prepare=self._prepare,
            may_replay=lambda: self._must_run("replay"),
            may_purge=lambda: self._must_run("purge", draining=True),
        )
        self.reruns = reruns(
            self.name,
            around,
            self.parts,
            orders,
            prepare=self._prepare,
            may=lambda: self._must_run("rerun"),
        )
        self.resolutions = resolutions(
            self.name, around, self.parts, orders, may=lambda: self._must_run("resolve")
        )
        self.applying = Applying(
            name=self.name,
            file=self._definition.file,
            journal=self._journal,
            plans=self._plans,
            manifests=connectors.manifests(),
            may=self._must_run,
            make_ready=self._make_ready,
            in_force=self._in_force,
            clock=self._clock,
            redact=redactor.text,
            uploaded_code=self._config.allow_uploaded_code,
        )
        self.parts.endings.on_halt = self._halt
        self.parts.pausing.on_pause.append(self._register_later)
        self.parts.pausing.on_resume.append(self._register_later)
        rows = await take_up(recovery.units, around, self.parts)
        self._server = await serve(
            PipelineServicer(self),
            bind=self._spec.bind,
            port=0,
            internal_token=self._token,
            redact=redactor.text,
        )
        self._address = f"{self._spec.advertise}:{self._server.port}"
        await self._open_inputs(around)
        self.parts.statistics.last_delivery_at = await reads.last_delivery_at(self._journal.rows)
        self._status = "active"
        if self.parts.stalling is not None:
            self.parts.stalling.on_change.append(self._register_later)
            self.parts.stalling.begin()
        self._register()
        self.parts.admission.open()
        if not self._end.done() or self._end.result().kind == "drain":
            # A check that was taken up may have halted the run before it began.
            self.parts.executor.open()
        self._journal.failed.add_done_callback(self._journal_failed)
        collector.calm()
        self._tidying.begin()
        self._log.info(
            "pipeline started",
            action="pipeline.started",
            version=self.version,
            # A paused run moves nothing that it found (edge 367).
            **{"resumed" if recovery.pause_reason is None else "held": recovery.packets},
            **rows,
            paused=recovery.pause_reason,
            address=self._address,
        )
        return self._address

    def _context(self, folder: Path | None = None) -> Context:
        return Context(
            pipeline=self.name,
            folder=folder or self._definition.folder,
            clock=self._clock,
            log=self._connector_log,
            packet_limit=self._config.packet_limit_bytes,
            home=self._home,
            mask=self._redactor.text,
            hide=self._redactor.add,
        )

    def _connector_log(self, level: str, message: str, **keys: Any) -> None:
        getattr(self._log, level)(message, **keys)

    async def _versions(
        self, recovery: Recovery, env: Mapping[str, str]
    ) -> tuple[Scopes, Pipeline]:
        """The version in force, and the plans of those that pending packets are pinned to.

        The version and the start are one commit, behind everything that could refuse them.
        """
        rows, at = self._journal.rows, self._clock.now_ms()
        beginning = begin(
            self._definition,
            await versions.latest(rows),
            await versions.last_start(rows),
            connectors.manifests(),
            at,
        )
        edition = beginning.edition
        scopes = Scopes(self.name, env=env, secrets=self._secrets.of(edition.pipeline.secrets))
        self._plans = Plans(
            connectors.manifests(),
            edition.folder,
            self._steps.of,
            files=self._home.pipeline(self.name).files,
            admit=partial(self._admit, scopes),
        )
        self._plans.put_in_force(edition)
        await self._plans.add_older({unit.version for unit in recovery.units}, self._version)
        changes: list[Change] = [] if beginning.added is None else [beginning.added]
        changes.append(
            Started(edition.version, recovery.packets, at, file_hash=self._definition.hash)
        )
        if recovery.pause_reason is not None:
            changes.append(Paused(recovery.pause_reason, at, restored=True))
        await self._journal.commit(*changes)
        return scopes, edition.pipeline

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
        context = self._context(edition.folder)
        return connectors.build_step("tap" if role == "tap" else "transform", name, context)

    async def _prepare(self, wanted: set[int]) -> None:
        """Makes ready what packets of these versions need. Raises: PipoError, ConnectorError."""
        await self._plans.add_older(wanted, self._version)
        await self._steps.open()
        await self._outputs.open(self._plans.outputs(), {})

    async def _make_ready(self, plan: Plan) -> None:
        """Opens what a version's packets need. Raises: PipoError, ConnectorError."""
        await self._steps.open()
        self._steps.require(self._plans.edition(plan.version))
        await self._outputs.open(self._plans.outputs(), {})
        self._outputs.require(plan)

    def _in_force(self, edition: Edition) -> None:
        """A version was applied: new packets go by it (edge 359)."""
        self.parts.admission.limit(edition.pipeline.buffer_max)
        self._register_later()
        self._log.info("version applied", action="version.applied", version=edition.version)

    async def _version(self, version: int) -> versions.Version | None:
        return await versions.one(self._journal.rows, version)

    async def _open_inputs(self, around: Surroundings) -> None:
        base = self._context()
        context = InputContext(
            pipeline=base.pipeline,
            folder=base.folder,
            clock=base.clock,
            log=base.log,
            packet_limit=base.packet_limit,
            home=base.home,
            mask=base.mask,
            hide=base.hide,
            intake=self.parts.intake,
        )
        self._inputs = build_inputs(self._plans.current().pipeline, around, context)
        for made in self._inputs:
            await made.open()
            if hasattr(made, "answer"):
                self._http = made  # type: ignore[assignment]  # the one kind that answers
            if isinstance(made, BotReader):
                self._bots += made.bots
            if hasattr(made, "deliver"):
                self.parts.hand_overs.input = made  # type: ignore[assignment]  # the one that takes

    def _register(self) -> None:
        if self._status == "active":
            registry.write(self._home, self._entry(self._address))

    def _register_later(self) -> None:
        """The pause has changed, and its listeners wait for no file."""
        self._timers.soon(self._register)

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
            status=self.status,
            started_at=self._started_at,
            runner=self._spec.runner_id,
            file=str(self._definition.file),
            restarts=self._spec.restarts,
            telegram_bot=",".join(self._bots) or None,
        )

    # ── what others ask ──────────────────────────────────────────────────────

    @property
    def journal(self) -> reads.Source:
        return self._journal

    @property
    def verifications(self) -> Verifications:
        return self.parts.verifications

    @property
    def pushes(self) -> Pushes:
        return self.parts.pushes

    @property
    def hand_overs(self) -> HandOvers:
        return self.parts.hand_overs

    @property
    def downstream(self) -> Downstream:
        return self.parts.downstream

    @property
    def acks(self) -> Acks:
        return self.parts.acks

    @property
    def version(self) -> int:
        return self._plans.current().version

    @property
    def status(self) -> str:
        if self._status == "active" and self.parts.pausing.reason is not None:
            return "paused"
        if self._status == "active" and self._stalled_at is not None:
            return "jammed"
        return self._status

    @property
    def _stalled_at(self) -> str | None:
        """Where the oldest packet of a jam stood when it was told; None when it is not jammed."""
        stalling = self.parts.stalling
        return None if stalling is None else stalling.at

    def masked(self, text: str) -> str:
        """A text without the secrets of the versions that run."""
        return self._redactor.text(text)

    def masked_data(self, value: Any) -> Any:
        """A packet's data without texts that equal a secret (decision 43)."""
        return self._redactor.data(value)

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
        return await self.parts.measures.info(
            self._entry(""),
            plan=self._plans.current(),
            checkers=self.verifications.checkers,
            verifying=len(self.verifications),
            now_ms=self._clock.now_ms(),
            routes={} if self._http is None else self._http.routes(),
            paused_reason=self.parts.pausing.reason,
            held=self.parts.pausing.held,
            stalled_at=self._stalled_at,
        )

    def metrics(self) -> list[pipeline_pb2.MetricSeries]:
        """Everything for /metrics that only this process knows."""
        return self.parts.measures.series(
            status=self.status,
            jammed=self._stalled_at is not None,
            checkers=self.verifications.checkers,
            refused=self.parts.admission.refused,
        )

    # ── pause and resume ─────────────────────────────────────────────────────

    async def pause(self, reason: str) -> pipo_pb2.PauseReply:
        """Pauses; a pause that stands already keeps its reason (edge 300).

        Raises: BadRequest, for a reason that may not be asked for; InvalidState, while it
            drains or stops; Unavailable, while it starts.
        """
        if reason and reason not in REQUESTED:
            raise BadRequest(
                f"reason is {reason!r}",
                hint=f"one of {', '.join(REQUESTED)}; without one, {MANUAL}",
            )
        self._must_run("pause")
        already = await self.parts.pausing.pause(reason or MANUAL)
        return pipo_pb2.PauseReply(pipeline=self.name, state="paused", already=already)

    async def resume(self) -> pipo_pb2.ResumeReply:
        """Ends the pause, if there is one.

        Raises: InvalidState, while it drains or stops; Unavailable, while it starts.
        """
        self._must_run("resume")
        already = await self.parts.pausing.resume()
        return pipo_pb2.ResumeReply(pipeline=self.name, state="active", already=already)

    def _must_run(self, what: str, *, draining: bool = False) -> None:
        """Raises: InvalidState, Unavailable, unless it runs or, where that will do, drains."""
        if draining and self._status in ("active", "draining"):
            return
        if self._status == "starting":
            raise Unavailable(f"{self.name} is starting", hint=f"{what} it in a moment")
        if self._status != "active" or self._end.done():
            raise InvalidState(
                f"{self.name} is {'draining' if self._status == 'active' else self._status}",
                hint=f"only a running pipeline can {what}; start it again: pipo start {self.name}",
            )

    # ── the ends ─────────────────────────────────────────────────────────────

    def ask_to_stop(self, *, now: bool) -> pipo_pb2.StopReply:
        """Begins a stop; the answer goes out before it takes effect (edge 311)."""
        already = self._end.done()
        self.end(End("now", "stop") if now else End("drain", "stop"))
        state = "stopping" if now else "draining"
        return pipo_pb2.StopReply(pipeline=self.name, state=state, already=already)

    def ask_to_drain(self, *, restart: bool) -> pipo_pb2.DrainReply:
        """Begins a drain; after one for a restart its host brings it up again (decision 7)."""
        already = self._end.done()
        self.end(End("drain", RESTARTED if restart else "stop"))
        return pipo_pb2.DrainReply(pipeline=self.name, state="draining", already=already)

    def end(self, end: End) -> None:
        """Asks for an end. Asked again, anything but a drain cuts short what is waited for."""
        if not self._end.done():
            self._end.set_result(end)
        elif end.kind != "drain":
            self._harder = end
            if self._status == "draining":
                self.parts.pending.give_up_waiting()
            elif self._status == "stopping":
                self.parts.executor.give_up_waiting()
                self.parts.writing.give_up_waiting()

    def _halt(self, reason: str) -> None:
        """A policy halts the pipeline: nothing more begins, what is in hand finishes."""
        if self._status == "stopping":
            return
        self.parts.pausing.end()
        self.parts.executor.close()
        self.parts.writing.give_back()
        self.end(End("halt", reason))

    async def run_to_end(self) -> int:
        """Waits for an end and carries it out; the exit code, 1 for a halt.

        Raises: what made the process fail, if a part of it did.
        """
        end = await self._end
        if self._crash is not None:
            raise self._crash
        if end.kind == "drain":
            drained = await self._drain()
            if self._crash is not None:
                raise self._crash
            end = self._harder or end
            if not drained and self._harder is None:
                self._log.warning("the drain timed out", pending=len(self.parts.pending))
        await self._close(end)
        if end.kind == "halt":
            self._log.error("pipeline halted", action="pipeline.failed", reason=end.reason)
            return 1
        self._log.info("pipeline stopped", action="pipeline.stopped", reason=end.reason)
        return 0

    async def _drain(self) -> bool:
        """Intake ends and what was accepted is worked off; False at the time limit.

        A pause ends first, and nothing pauses it again (edge 307).
        """
        self._status = "draining"
        self._end_looking()
        self.parts.pausing.end()
        self.parts.admission.close("draining")
        await self._close_inputs()
        await self.parts.pausing.resume()
        self.parts.batches.hasten()
        await self._journal.commit(Draining(self._clock.now_ms()))
        if self._harder is not None:
            return False
        return await self.parts.pending.emptied(DRAIN_TIMEOUT_MS / 1000.0)

    def _end_looking(self) -> None:
        """No stall is looked for any more."""
        if self.parts.stalling is not None:
            self.parts.stalling.end()

    async def _close(self, end: End) -> None:
        """Order: 1 intake, 2 steps in hand, 3 waits given back, 4 the last event,
        5 registry, 6 streams, 7 server, 8 destination, 9 journal.

        The registry comes before the streams: whoever loses one finds that nobody is
        to be dialled any more.
        """
        self._status = "stopping"
        self._end_looking()
        self._tidying.end()
        self.parts.admission.close("stopped")
        await self._close_inputs()
        self.parts.executor.close()
        self.parts.acks.close()
        self._timers.cancel_waits()
        self.parts.batches.wind_up()
        grace_s = NOW_GRACE_S if end.kind == "now" else self._config.stop_timeout_s
        rested = all(
            await asyncio.gather(
                self.parts.executor.idle(grace_s), self.parts.writing.idle(grace_s)
            )
        )
        self.parts.pending.release_waits()
        last = Failed if end.kind == "halt" else Stopped
        await self._journal.commit(last(end.reason, self._clock.now_ms()))
        registry.remove(self._home, self.name)
        self.verifications.close()
        self._timers.end_reading()
        if self._server is not None:
            await self._server.stop(REQUESTS_GRACE_S)
        await self._timers.close(REQUESTS_GRACE_S if rested else 0.0)
        await self._functions.close()
        if rested:
            await self._outputs.close()
            await self._steps.close()
        # Else a destination holds a write up, and closing it would wait for that: it is left
        # as a kill leaves it, and the keys tell the next start what was written (O074).
        await self._journal.close(clean=True)

    async def _close_inputs(self) -> None:
        for made in self._inputs:
            await made.close()

    def _crashed(self, error: BaseException) -> None:
        """A part failed in a way that is a bug: the process starts anew from disk."""
        if self._crash is None:
            # Once: a journal that fails is told to everyone who waits for it.
            self._log.error("a part of the pipeline failed", exc_info=error)
            self._crash = error
        self.end(End("now", "crashed"))

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no one caught. In a listener of the journal it may have cost a unit its turn."""
        error = context.get("exception")
        if isinstance(error, Exception) and context["message"] == LISTENER_RAISED:
            self._crashed(error)
        else:
            self._log.error(context["message"], action="unhandled", exc_info=error)

    def _journal_failed(self, failed: asyncio.Future[BaseException]) -> None:
        if not failed.cancelled():
            self._crashed(failed.result())
