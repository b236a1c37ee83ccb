"""One pipeline process: its start, what it is asked, and its way to one of its ends.

The parts know nothing of each other beyond what `assembly` gives them. This file
holds the order of things and no rule about packets; which end wins is said in `ends`, what
follows from it in `closing`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipo import collector
from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import BotReader, Context, HttpInput, Input, InputContext, Step
from pipo.crashpoints import reach
from pipo.errors import BadRequest, InvalidState, Unavailable
from pipo.home import Home, registry
from pipo.home.config import Config
from pipo.home.registry import Entry
from pipo.journal import reads, versions
from pipo.journal.changes import (
    RESTARTED,
    Change,
    LifetimeEnded,
    Marked,
    Paused,
    Started,
)
from pipo.journal.clean_up import CleanUp
from pipo.journal.sqlite_journal import LISTENER_RAISED, Recovery, SqliteJournal
from pipo.lang.model import Lifetime, Pipeline
from pipo.payload import encode
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo.telemetry.logs import logger, mask
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline import closing
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
from pipo_runner.pipeline.closing import Standing
from pipo_runner.pipeline.downstream import Downstream
from pipo_runner.pipeline.ends import Effect, End, Ends
from pipo_runner.pipeline.functions import Functions
from pipo_runner.pipeline.handing import HandOvers
from pipo_runner.pipeline.http_door import HttpDoor
from pipo_runner.pipeline.lifetime import Limit, terms_of
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
        listening: socket.socket | None = None,
    ) -> None:
        """`listening` is the port of its own that is reserved for its http input."""
        self.name = spec.name
        self.pid = os.getpid()
        self._spec = spec
        self._home = home
        self._config = config
        self._clock = clock
        self._definition = definition
        self._journal = journal
        self._token = internal_token
        self._listening = listening
        self._log = logger("pipeline")
        self._started_at = clock.now_ms()
        self._ttl: str | None = spec.options.get("ttl")
        self._address = ""
        self._ends = Ends()
        self._lifetime_ended: LifetimeEnded | None = None
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
            terms=terms_of(pipeline.lifetime, self._ttl),
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
            on_disk=self._definition.on_disk,
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
        await self.parts.statistics.recall()
        self.parts.lifetime.on_over = self._lifetime_over
        self.parts.lifetime.begin(
            anchor_ms=recovery.ttl_anchor or self._started_at, reached=recovery.lifetime_over
        )
        await self._open_inputs(around)
        self._ends.move_to("active")
        if self.parts.stalling is not None:
            self.parts.stalling.on_change.append(self._register_later)
            self.parts.stalling.begin()
        self._register()
        self.parts.admission.open()
        if self._ends.works:
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
        rows, at = self._journal.rows, self._started_at
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
            Started(
                edition.version,
                recovery.packets,
                at,
                ttl=self._ttl,
                file_hash=self._definition.hash,
            )
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
            listening=self._listening,
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
        if self._ends.phase == "active":
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
            listen=None if self._http is None else self._http.port,
            ttl=self._ttl,
            state="running",
            status=self.status,
            started_at=self._started_at,
            runner=self._spec.runner_id,
            file=str(self._definition.file),
            restarts=self._spec.restarts,
            telegram_bot=",".join(self._bots) or None,
            detached=self._spec.options.get("detached") is True,
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
        phase = self._ends.phase
        if phase == "active" and self.parts.pausing.reason is not None:
            return "paused"
        if phase == "active" and self._stalled_at is not None:
            return "jammed"
        return phase

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
            lifetime=self.parts.lifetime,
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
        phase = self._ends.phase
        if draining and phase in ("active", "draining"):
            return
        if phase == "starting":
            raise Unavailable(f"{self.name} is starting", hint=f"{what} it in a moment")
        if phase != "active" or self._ends.end is not None:
            reached = self.parts.lifetime.reached
            over = "" if reached is None else f"; its lifetime is over: {reached}"
            raise InvalidState(
                f"{self.name} is {'draining' if phase == 'active' else phase}{over}",
                hint=f"only a running pipeline can {what}; start it again: pipo start {self.name}",
            )

    # ── the ends ─────────────────────────────────────────────────────────────

    def ask_to_stop(self, *, now: bool) -> pipo_pb2.StopReply:
        """Begins a stop; the answer goes out before it takes effect (edge 311)."""
        already = self._ends.end is not None
        self.end(End("now", "stop") if now else End("drain", "stop"))
        state = "stopping" if now else "draining"
        return pipo_pb2.StopReply(pipeline=self.name, state=state, already=already)

    def ask_to_drain(self, *, restart: bool) -> pipo_pb2.DrainReply:
        """Begins a drain; after one for a restart its host brings it up again (decision 7)."""
        already = self._ends.end is not None
        self.end(End("drain", RESTARTED if restart else "stop"))
        return pipo_pb2.DrainReply(pipeline=self.name, state="draining", already=already)

    def end(self, end: End) -> Effect:
        """Asks for an end; what follows from that."""
        effect = self._ends.ask(end)
        if self._ends.phase in ("draining", "stopping"):
            closing.give_up_waiting(self.parts, effect)
        return effect

    def _halt(self, reason: str) -> None:
        """A policy halts the pipeline: nothing more begins, what is in hand finishes."""
        if self._ends.phase == "stopping":
            return
        self.parts.pausing.end()
        self.parts.executor.close()
        self.parts.writing.give_back()
        self.end(End("halt", reason))

    def _lifetime_over(self, limit: Limit) -> None:
        """A limit of the lifetime is reached: intake ends with it (edge 5)."""
        self.parts.admission.end_lifetime(limit.refusal(self.name))
        drains = self.parts.lifetime.terms.drains
        # What is in hand finishes either way: nobody waits for a stop of this kind.
        end = End("drain" if drains else "suspend", limit.reason, completes=True)
        if self.end(end) is not Effect.BEGINS:
            return
        self.parts.pausing.end()
        self._lifetime_ended = LifetimeEnded(
            reason=limit.reason,
            limit=str(limit),
            stats=encode(self.parts.statistics.scope()),
            at=self._clock.now_ms(),
        )
        self._log.info(
            f"lifetime {limit} reached; {'draining' if drains else 'stopping'}",
            action=LifetimeEnded.event,
        )

    async def run_to_end(self) -> int:
        """Waits for an end and carries it out; the exit code, 1 for a halt.

        Raises: what made the process fail, if a part of it did.
        """
        end = await self._ends.wait()
        if self._crash is not None:
            raise self._crash
        run = self._standing()
        if self._lifetime_ended is not None:
            reach("lifetime.before_commit")
            await self._journal.commit(self._lifetime_ended)
            reach("lifetime.after_commit")
        if end.kind == "drain":
            drained = await closing.drain(run, self._ends, self._drain_timeout_s)
            if self._crash is not None:
                raise self._crash
            overtaken, end = end, await self._ends.wait()
            if not drained and end.kind == overtaken.kind:
                self._log.warning("the drain timed out", pending=len(self.parts.pending))
        await closing.close(run, self._ends, end, self._grace_s(end))
        return self._ended(end)

    def _ended(self, end: End) -> int:
        if end.kind == "halt":
            self._log.error("pipeline halted", action="pipeline.failed", reason=end.reason)
            return 1
        if end.completes:
            self._log.info("pipeline completed", action="pipeline.completed", reason=end.reason)
        else:
            self._log.info("pipeline stopped", action="pipeline.stopped", reason=end.reason)
        return 0

    @property
    def _drain_timeout_s(self) -> float:
        lifetime = self._plans.current().pipeline.lifetime or Lifetime()
        return lifetime.drain_timeout_ms / 1000.0

    def _grace_s(self, end: End) -> float:
        return closing.NOW_GRACE_S if end.kind == "now" else self._config.stop_timeout_s

    def _standing(self) -> Standing:
        return Standing(
            name=self.name,
            home=self._home,
            clock=self._clock,
            journal=self._journal,
            parts=self.parts,
            timers=self._timers,
            tidying=self._tidying,
            inputs=self._inputs,
            steps=self._steps,
            functions=self._functions,
            outputs=self._outputs,
            server=self._server,
        )

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
