"""One pipeline process: its start, what it is asked, and its way to one of its ends.

The parts know nothing of each other beyond what `assembly` gives them. This file
holds the order of things and no rule about packets. What it stands on is `ground`; which end
wins is said in `ends`, what comes of it in `closing`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from pipo import collector
from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import BotReader, HandOverInput, HttpInput, Input, InputContext
from pipo.errors import BadRequest, InvalidState, Unavailable
from pipo.home import Home, registry, standing
from pipo.home.config import Config
from pipo.home.registry import Entry
from pipo.journal import reads
from pipo.journal.changes import RESTARTED
from pipo.journal.clean_up import CleanUp
from pipo.journal.sqlite_journal import LISTENER_RAISED, SqliteJournal
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo.telemetry.logs import logger, mask
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.assembly import Parts, Surroundings, assemble, build_inputs
from pipo_runner.pipeline.closing import Closing, Standing
from pipo_runner.pipeline.definition.versions import Definition, Edition
from pipo_runner.pipeline.delivery.acks import Acks
from pipo_runner.pipeline.delivery.downstream import Downstream
from pipo_runner.pipeline.delivery.offers import Offers
from pipo_runner.pipeline.flow.pausing import MANUAL, REQUESTED
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.ground import Ground
from pipo_runner.pipeline.intake.body_budget import BODIES_LIMIT, BodyBudget
from pipo_runner.pipeline.intake.handing import HandOvers
from pipo_runner.pipeline.intake.http_door import HttpDoor
from pipo_runner.pipeline.intake.pushing import Pushes
from pipo_runner.pipeline.life.ends import End, Ends
from pipo_runner.pipeline.life.lifetime import terms_of
from pipo_runner.pipeline.life.recovery import told
from pipo_runner.pipeline.life.tidying import Tidying
from pipo_runner.pipeline.operations import Operations, operations
from pipo_runner.pipeline.orders.applying import Applying
from pipo_runner.pipeline.resuming import loader, take_up
from pipo_runner.pipeline.servicer import PipelineServicer
from pipo_runner.spec import ProcessSpec


class PipelineProcess:
    """A pipeline that runs. Use: `start`, then `run_to_end`."""

    parts: Parts
    operations: Operations
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
        self._registered = registry.kept(home, spec.name, lambda: self._entry(self._address))
        self._ends = Ends()
        self._closing = Closing(self._ends, self._standing)
        self._timers = Timers(self._closing.crashed)
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        self._budget = BodyBudget(BODIES_LIMIT * config.packet_limit_bytes)
        self._inputs: list[Input] = []
        self._http: HttpInput | None = None
        self._bots: list[str] = []
        self._server: RunningServer | None = None
        self._tidying = Tidying(
            CleanUp(journal, clock),
            lambda: self._ground.plans.current().pipeline.retention,
            timers=self._timers,
            log=self._connector_log,
        )

    # ── start ────────────────────────────────────────────────────────────────

    async def start(self) -> str:
        """Serves when it returns; the address that others dial.

        Order: 1 journal, 2 version and its secrets, 3 destination and steps, 4 what an earlier run
        left, 5 server, 6 the lifetime, 7 inputs, 8 registry; only then are packets taken.
        Raises: PipoError for whatever the pipeline's author or operator can mend.
        """
        self._redactor = Redactor()
        mask(self._redactor)
        self._ground = ground = Ground(
            self.name,
            self._definition,
            home=self._home,
            config=self._config,
            clock=self._clock,
            journal=self._journal,
            redactor=self._redactor,
            log=self._connector_log,
        )
        recovery = await self._journal.recover()
        await ground.open(recovery, at=self._started_at, ttl=self._ttl)
        around = self._surroundings()
        self.parts = parts = assemble(ground.plans.current().pipeline, around, recovery)
        self.operations = operations(
            self.name, around, parts, prepare=ground.prepare, may=self._must_run
        )
        self.applying = self._applying()
        self._listen()
        rows = await take_up(recovery.units, around, parts)
        self._server = await serve(
            PipelineServicer(self),
            bind=self._spec.bind,
            port=0,
            internal_token=self._token,
            redact=self._redactor.text,
        )
        self._address = f"{self._spec.advertise}:{self._server.port}"
        await parts.statistics.recall()
        parts.lifetime.begin(
            anchor_ms=recovery.ttl_anchor or self._started_at, reached=recovery.lifetime_over
        )
        await self._open_inputs(around)
        self._ends.move_to("active")
        if parts.stalling is not None:
            parts.stalling.begin()
        self._registered.write()
        self._look_after_entry()
        parts.admission.open()
        if self._ends.works:
            # A check that was taken up may have halted the run before it began.
            parts.executor.open()
        self._journal.failed.add_done_callback(self._journal_failed)
        collector.calm()
        self._tidying.begin()
        self._log.info(
            "pipeline started",
            action="pipeline.started",
            version=self.version,
            # A paused run moves nothing that it found (edge 367).
            **{"resumed" if recovery.pause_reason is None else "held": recovery.packets},
            **_said(after=self._spec.crash, units=told(rows), paused=recovery.pause_reason),
            address=self._address,
        )
        return self._address

    def _surroundings(self) -> Surroundings:
        ground = self._ground
        return Surroundings(
            journal=self._journal,
            scopes=ground.scopes,
            plans=ground.plans,
            output_of=ground.outputs.of,
            timers=self._timers,
            clock=self._clock,
            context=ground.context(),
            redact=self._redactor.text,
            load=loader(self._journal),
            budget=self._budget,
            terms=terms_of(ground.plans.current().pipeline.lifetime, self._ttl),
        )

    def _applying(self) -> Applying:
        return Applying(
            name=self.name,
            file=self._definition.file,
            journal=self._journal,
            plans=self._ground.plans,
            manifests=connectors.manifests(),
            may=self._must_run,
            make_ready=self._ground.make_ready,
            in_force=self._in_force,
            clock=self._clock,
            redact=self._redactor.text,
            uploaded_code=self._config.allow_uploaded_code,
            on_disk=self._definition.on_disk,
        )

    def _listen(self) -> None:
        """Hears of what ends the run, and of what its registry entry tells."""
        parts = self.parts
        parts.endings.on_halt = self._closing.halt
        parts.lifetime.on_over = self._closing.lifetime_over
        parts.pausing.on_pause.append(self._register_later)
        parts.pausing.on_resume.append(self._register_later)
        if parts.stalling is not None:
            parts.stalling.on_change.append(self._register_later)

    def _connector_log(self, level: str, message: str, **keys: Any) -> None:
        getattr(self._log, level)(message, **keys)

    def _in_force(self, edition: Edition) -> None:
        """A version was applied: new packets go by it (edge 359)."""
        self.parts.admission.limit(edition.pipeline.buffer_max)
        self._register_later()
        self._log.info("version applied", action="version.applied", version=edition.version)

    async def _open_inputs(self, around: Surroundings) -> None:
        base = around.context
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
        self._inputs = build_inputs(self._ground.plans.current().pipeline, around, context)
        for made in self._inputs:
            await made.open()
            if isinstance(made, HttpInput):
                self._http = made
            if isinstance(made, HandOverInput):
                self.parts.hand_overs.input = made
            if isinstance(made, BotReader):
                self._bots += made.bots

    def _register(self) -> None:
        if self._ends.phase == "active":
            self._registered.renew()

    def _look_after_entry(self) -> None:
        """Looks until the waits are given back, which comes before the entry is taken away."""
        self._registered.look()
        self._timers.after(standing.LOOK_S, self._look_after_entry)

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
    def offers(self) -> Offers:
        return self.parts.offers

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
        return self._ground.plans.current().version

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
            plan=self._ground.plans.current(),
            checkers=self.offers.checkers,
            verifying=len(self.offers),
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
            checkers=self.offers.checkers,
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
                hint=f"only a running pipeline can {what};"
                f" once it has ended: pipo start {self.name}",
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

    def end(self, end: End) -> None:
        """Asks for an end; `ends` says which one wins."""
        self._closing.ask(end)

    async def run_to_end(self) -> int:
        """Waits for an end and carries it out; the exit code, 1 for a halt.

        Raises: what made the process fail, if a part of it did.
        """
        return await self._closing.run_to_end()

    def _standing(self) -> Standing:
        return Standing(
            name=self.name,
            home=self._home,
            config=self._config,
            clock=self._clock,
            journal=self._journal,
            timers=self._timers,
            tidying=self._tidying,
            ground=self._ground,
            parts=self.parts,
            inputs=self._inputs,
            server=self._server,
        )

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no one caught. In a listener of the journal it may have cost a unit its turn."""
        error = context.get("exception")
        if isinstance(error, Exception) and context["message"] == LISTENER_RAISED:
            self._closing.crashed(error)
        else:
            self._log.error(context["message"], action="unhandled", exc_info=error)

    def _journal_failed(self, failed: asyncio.Future[BaseException]) -> None:
        if not failed.cancelled():
            self._closing.crashed(failed.result())


def _said(**words: str | None) -> dict[str, str]:
    """Those that there is something to say for."""
    return {key: word for key, word in words.items() if word is not None}
