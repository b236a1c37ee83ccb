"""All pipelines of one host: started, stopped, found, restarted, let go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipo.errors import BadRequest, InvalidState, PipoError, Unavailable
from pipo.home import Home, PipelineHome, desired, engine, leases, ports, registry
from pipo.home import sent as sent_texts
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.sent import Sent
from pipo.telemetry.logs import logger
from pipo_runner.host import adoption
from pipo_runner.host.adoption import Finding, Orphan
from pipo_runner.host.gate import Gate, starts_at_once
from pipo_runner.host.known import known_file
from pipo_runner.host.options import NOTHING, Asked, Options, of_restart, of_start
from pipo_runner.host.placement import deal, due
from pipo_runner.host.policy import Action, act_on
from pipo_runner.host.supervised import Supervised
from pipo_runner.host.surroundings import Surroundings, Target
from pipo_runner.host.targets import refuse_unheard
from pipo_runner.host.unjournaled import journal_stopped

_log = logger("host.supervisor")
SCAN_EVERY_S = 2.0
# How many adopted pipelines are asked at a look whether they answer.
PROBES_AT_ONCE = 8
# The next look, while something waits for a host.
SCAN_SOON_S = 1.0
# How long a restart is waited for; a longer drain ends in its start all the same.
RESTART_WAIT_S = 60.0

OptionsOf = Callable[[Target, Options], Options]
"""The options of a start, by what it starts and the last ones."""


class Supervisor:
    """The pipelines of this host. `open` first, `suspend` last."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._out = surroundings
        self._gate = Gate(starts_at_once())
        self._supervised: dict[str, Supervised] = {}
        # Since when each pipeline is seen to need a host, and have none.
        self._orphaned: dict[str, int] = {}
        # The adopted pipeline that was asked last whether it answers.
        self._probed = ""
        self._complained: dict[str, str] = {}
        # Started by somebody's call, and to be finished even when the caller goes away.
        self._starts: set[asyncio.Task[Supervised]] = set()
        self._scanning = asyncio.Lock()
        self._scanner: asyncio.Task[None] | None = None
        self._suspending = False
        self._crash_restarts = 0

    @property
    def supervised(self) -> Sequence[Supervised]:
        """By name."""
        return [self._supervised[name] for name in sorted(self._supervised)]

    @property
    def crash_restarts(self) -> int:
        """Restarts after crashes, since this host began."""
        return self._crash_restarts + sum(s.crash_restarts for s in self._supervised.values())

    async def open(self) -> None:
        """Takes over what should run, and looks again every few seconds."""
        self._scanner = asyncio.create_task(self._scan_forever(), name="adoption")

    async def start(self, target: str | Sent, asked: Asked = NOTHING) -> Supervised:
        """The pipeline that `target` names or is; it serves on return.

        Cancelled: the start goes on. Raises: PipoError; then nothing has changed.
        """

        def options(found: Target, kept: Options) -> Options:
            detached = self._out.config.detached
            return of_start(asked, kept, detached=detached, has_port=found.over_http)

        return await self._begun(target, asked, options)

    async def stop(self, name: str, *, now: bool) -> tuple[str, bool]:
        """Stops a pipeline: its state then, and whether it was in it already.

        Raises: NotFound, if the home does not know it; Unavailable, if it does not answer.
        """
        ours = self._supervised.get(name)
        if ours is not None:
            limit_s = await asyncio.to_thread(self._out.drain_s, ours.wish.file)
            return await ours.stop(now=now, drain_s=limit_s)
        return await self._stop_unsupervised(name, now=now)

    async def restart(self, name: str, asked: Asked = NOTHING) -> Supervised:
        """Drains a pipeline and starts it again, from its file as it is then (decision 7).

        One that does not run is started. After RESTART_WAIT_S it may still drain on return.
        Cancelled: it goes on. Raises: PipoError; for a broken file or a taken port before
            anything stops.
        """

        def options(found: Target, kept: Options) -> Options:
            return of_restart(asked, kept, has_port=found.over_http)

        ours = self._supervised.get(name)
        if ours is None or not ours.runs:
            return await self._begun(name, asked, options)
        self._refuse_while_suspending()
        if ours.state == "stopping":
            raise self._running(name, ours.state)
        found = await self._resolved(name, asked)
        if asked.listen not in (None, _listening(self._out.home, name)):
            await asyncio.to_thread(ports.refuse_taken, asked.listen, self._out.home)
        limit_s = await asyncio.to_thread(self._out.drain_s, found.file)
        renewed = ours.renew(
            options(found, ours.wish.options), drain_s=limit_s, wait_s=RESTART_WAIT_S
        )
        await asyncio.shield(renewed)
        return ours

    async def adopt(self, attach: Sequence[str] = ()) -> None:
        """Looks now at every pipeline of the home, and acts; those named are detached no more."""
        async with self._scanning:
            orphans = []
            for name in adoption.names(self._out.home):
                if name not in self._supervised and not self._suspending:
                    orphans += await self._consider(name)
            self._take_part(orphans)
            await asyncio.gather(*(one.probe() for one in self._next_probed()))
        # One that is just brought up again is waited for.
        await asyncio.gather(*(one.attach() for one in self.supervised if one.name in attach))

    def _next_probed(self) -> list[Supervised]:
        """The adopted ones whose turn it is; each costs a connection."""
        adopted = [one for one in self.supervised if one.runs and not one.own]
        later = [one for one in adopted if one.name > self._probed]
        turn = (later + adopted)[: min(PROBES_AT_ONCE, len(adopted))]
        self._probed = turn[-1].name if turn else ""
        return turn

    async def suspend(self, timeout_s: float) -> None:
        """Lets go of everything: own processes suspend, adopted ones run on.

        1. No start, no scan any more. 2. Starts under way finish. 3. SIGTERM to own
        processes. 4. Up to `timeout_s` for them. Cancelled: a second signal to them.
        """
        self._suspending = True
        if self._scanner is not None:
            self._scanner.cancel()
        try:
            async with asyncio.timeout(timeout_s):
                if self._starts:
                    await asyncio.wait(self._starts)
                for one in self.supervised:
                    one.suspend()
                for one in self.supervised:
                    await one.finished()
        except TimeoutError:
            left = ", ".join(one.name for one in self.supervised)
            _log.warning("left running", action="runner.suspend", pipelines=left)
        except asyncio.CancelledError:
            for one in self.supervised:
                one.hurry()
            raise

    # ── starting and stopping ────────────────────────────────────────────────

    async def _begun(self, target: str | Sent, asked: Asked, options: OptionsOf) -> Supervised:
        """A start that is finished even when its caller goes away (edge 445)."""
        self._refuse_while_suspending()

        async def begin() -> Supervised:
            return await self._start(await self._resolved(target, asked), options)

        start = asyncio.create_task(begin(), name="start")
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)
        return await asyncio.shield(start)

    def _refuse_while_suspending(self) -> None:
        if self._suspending:
            raise Unavailable("this runner is stopping", hint="try again when it is back")
        if self._engine_stops():
            raise _engine_stopping("NAME")

    def _engine_stops(self) -> bool:
        """Whether the engine that this host is a part of has begun to end (edge 445)."""
        return self._out.runner_id == engine.INSTANCE and engine.stopping(self._out.home)

    async def _resolved(self, target: str | Sent, asked: Asked) -> Target:
        found = await asyncio.to_thread(self._out.resolve, target)
        if asked.listen is not None and not found.over_http:
            raise BadRequest(
                f"{found.name} has no http input that could listen on port {asked.listen}",
                hint="only an input with `via: http` takes requests: leave the port out",
            )
        return found

    async def _start(self, found: Target, options: OptionsOf) -> Supervised:
        name, out = found.name, self._out
        ours = self._supervised.get(name)
        if ours is not None and ours.state == "backoff":
            await ours.dissolve()
            ours = None
        files = out.home.pipeline(name)
        known = desired.read(files)
        holder = leases.holder(files.lease)
        if (ours is not None or holder is not None) and known and known.file != found.file:
            raise _taken(name, f"{holder or 'this runner'}", by=known.file, wanted=found.file)
        if ours is not None:
            raise self._running(name, ours.state)
        if holder is not None:
            raise _already(name, f"{holder}")
        refuse_unheard(found, options(found, known.options if known else {}), out.home)
        files.ensure()
        try:
            claim = Lease.try_acquire(files.claim, clock=out.clock)
        except PipoError:
            if known is None and leases.holder(files.claim) is None:
                _forget(files)
            raise
        if claim is None:
            holder = leases.holder(files.claim)
            raise _already(name, f"supervised by {holder or 'another runner'}")
        before = desired.read(files)
        if self._engine_stops():
            # It may have looked at the claims already, and would leave this one undrained.
            claim.release()
            if before is None:
                _forget(files)
            raise _engine_stopping(name)
        last = before or Desired("stopped", "")
        wish = replace(last, file=found.file, options=options(found, last.options))
        one = self._supervise(name, wish, claim)
        try:
            await one.start(found.sent)
        except BaseException:
            self._supervised.pop(name, None)
            sent_texts.keep_only(files, last.file)
            if before is None:
                _forget(files)
            raise
        sent_texts.keep_only(files, found.file)
        self._orphaned.pop(name, None)
        return one

    def _running(self, name: str, state: str) -> InvalidState:
        if state == "stopping":
            return InvalidState(
                f"{name} is stopping", hint=f"wait for its drain, or: pipo stop {name} --now"
            )
        if state == "starting":
            return InvalidState(
                f"{name} is starting already", hint=f"see how it goes: pipo status {name}"
            )
        holder = leases.holder(self._out.home.pipeline(name).lease)
        return _already(name, f"{holder or 'this runner'}")

    async def _stop_unsupervised(self, name: str, *, now: bool) -> tuple[str, bool]:
        out = self._out
        file = known_file(out.home, name)
        files = out.home.pipeline(name)
        wish = desired.read(files) or Desired("running", file)
        stopped = replace(wish, desired="stopped", state="stopped", runner=out.runner_id)
        if leases.holder(files.lease) is not None:
            entry = registry.read(out.home, name)
            if entry is None:
                raise Unavailable(f"no registry entry says where {name} is", hint="try again")
            already = await out.calls.stop(entry.address, name, now=now)
            desired.write(files, replace(stopped, state="stopping"))
            return ("stopping" if now else "draining"), already
        if wish.desired == "stopped" and registry.read(out.home, name) is None:
            return "stopped", True
        desired.write(files, stopped)
        registry.remove(out.home, name)
        if leases.holder(files.claim) is None:
            await journal_stopped(out, name, file)
        return "stopped", False

    # ── finding ──────────────────────────────────────────────────────────────

    async def _scan_forever(self) -> None:
        while True:
            try:
                await self.adopt()
            except Exception as error:
                # The next look may go well; the pipelines that run need none.
                _log.error("the look at the home failed", action="adoption", exc_info=error)
            await asyncio.sleep(SCAN_SOON_S if self._orphaned else SCAN_EVERY_S)

    async def _consider(self, name: str) -> list[Orphan]:
        """Looks at one pipeline and settles what is over; an orphan is returned."""
        orphaned_at = self._orphaned.pop(name, None)
        try:
            seen = await adoption.look(
                self._out.home,
                name,
                runner_id=self._out.runner_id,
                last_word=self._out.last_word,
            )
            action = act_on(seen.found)
            if action in (Action.ADOPT, Action.RESTART):
                # Not the wall clock: one that is set back would hold a failover up.
                now_ms = round(self._out.clock.monotonic() * 1000)
                since_ms = self._orphaned[name] = now_ms if orphaned_at is None else orphaned_at
                return [Orphan(seen, action, now_ms - since_ms)]
            if action is not Action.LEAVE:
                self._act(action, seen)
        except PipoError as error:
            self._complain(name, error)
        return []

    def _take_part(self, orphans: Sequence[Orphan]) -> None:
        """Takes this host's part of the orphans, and what others leave of theirs."""
        if not orphans:
            return
        home, here = self._out.home, self._out.runner_id
        loads = {**adoption.loads(home), here: len(self._supervised)}
        dealt = deal([one.seen.name for one in orphans], loads)
        for one in orphans:
            ours, mine = one.seen.found.ours, dealt[one.seen.name] == here
            if due(one.action, ours=ours, dealt=mine, orphaned_ms=one.orphaned_ms):
                try:
                    self._act(one.action, one.seen)
                except PipoError as error:
                    self._complain(one.seen.name, error)

    def _complain(self, name: str, error: PipoError) -> None:
        """Says it once, not at every look."""
        if self._complained.get(name) != error.message:
            self._complained[name] = error.message
            _log.error(error.message, action="adoption", pipeline=name, hint=error.hint)

    def _act(self, action: Action, seen: Finding) -> None:
        """Does it with the claim in hand, so that of several hosts one does; else nothing.

        Others look at the same time: what was seen may be over by the time that the claim is ours.
        """
        files = self._out.home.pipeline(seen.name)
        files.ensure()
        claim = Lease.try_acquire(files.claim, clock=self._out.clock)
        if claim is None:
            return
        if self._suspending or not adoption.still(self._out.home, seen):
            claim.release()
            return
        match action:
            case Action.ADOPT | Action.RESTART:
                self._orphaned.pop(seen.name, None)
                one = self._supervise(seen.name, seen.wish, claim)
                one.adopt() if action is Action.ADOPT else one.restart()
                return
            case Action.SETTLE:
                failed = seen.ending is not None and seen.ending.kind == "failed"
                reason = seen.ending.reason if seen.ending and failed else None
                self._settle(seen, seen.end_state, reason)
            case Action.FAIL:
                self._settle(seen, "failed", f"its file is gone: {seen.wish.file}")
            case Action.LEAVE:
                pass
        claim.release()

    def _supervise(self, name: str, wish: Desired, claim: Lease) -> Supervised:
        one = self._supervised[name] = Supervised(
            name, wish, claim=claim, surroundings=self._out, gate=self._gate, over=self._over
        )
        return one

    def _settle(self, seen: Finding, state: str, error: str | None) -> None:
        files = self._out.home.pipeline(seen.name)
        settled = replace(seen.wish, desired="stopped", state=state, error=error)
        if settled != desired.read(files):
            desired.write(files, settled)
        registry.remove(self._out.home, seen.name)
        _log.info("settled", action="pipeline.settle", pipeline=seen.name, state=state)

    def _over(self, one: Supervised) -> None:
        if self._supervised.get(one.name) is one:
            del self._supervised[one.name]
        self._crash_restarts += one.crash_restarts


def _forget(files: PipelineHome) -> None:
    """Leaves nothing of a pipeline that never ran; its folder stays if anything else is there."""
    files.claim.unlink(missing_ok=True)
    files.lease.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        files.folder.rmdir()


def _listening(home: Home, name: str) -> int | None:
    """The port that a pipeline serves itself on now."""
    entry = registry.read(home, name)
    return None if entry is None else entry.listen


def _engine_stopping(name: str) -> Unavailable:
    return Unavailable(
        "the engine is stopping, and starts nothing more",
        hint=f"once it has ended: pipo start {name} brings up a new one",
    )


def _taken(name: str, where: str, *, by: str, wanted: str) -> InvalidState:
    """Another file's pipeline runs under the name; a restart would not be of the one wanted."""
    return InvalidState(
        f"{name} is already running: {where}, from another file: {by}",
        hint=f"give {wanted} a `name` of its own, or put it in the other one's place:"
        f" pipo stop {name}, then start it again",
    )


def _already(name: str, where: str) -> InvalidState:
    return InvalidState(
        f"{name} is already running: {where}",
        hint=f"stop it first: pipo stop {name}, or start it anew: pipo restart {name}",
    )
