"""One pipeline under this host: its process, its restarts, its end.

A `Supervised` holds the pipeline's claim (a lease of its own, so that no two
hosts supervise one pipeline) from `start`, `adopt` or `restart` until its life is
over; then `over` is called. One task, `_live`, is its whole life:

    process runs ── ends ── judged ─┬─ stopped, completed, failed ── over
         ▲                          ├─ suspended ── over, still desired
         └── backoff ── crashed ◄───┤
                                    └─ crashed too often ── over
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pipo.errors import Conflict, PipoError, Unavailable
from pipo.home import desired, leases, registry
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.sent import Sent, keep
from pipo.telemetry.logs import logger
from pipo_runner.host import policy
from pipo_runner.host.gate import Gate
from pipo_runner.host.insistence import Insistence
from pipo_runner.host.launching import PERMANENT, journal_stop, launch, told
from pipo_runner.host.options import Options
from pipo_runner.host.policy import Exit, GiveUp, Verdict, Wait
from pipo_runner.host.processes import Adopted, Process
from pipo_runner.host.surroundings import Surroundings
from pipo_runner.host.unjournaled import journal_stopped, may_lack_a_word

_log = logger("host.supervised")
# Beyond its own limits, before the next and harsher step of a stop.
STOP_MARGIN_S = 2.0
_JITTER = 0.2


class Supervised:
    """One pipeline that this host supervises. Use one of `start`, `adopt`, `restart`, once."""

    def __init__(
        self,
        name: str,
        wish: Desired,
        *,
        claim: Lease,
        surroundings: Surroundings,
        gate: Gate,
        over: Callable[[Supervised], None],
    ) -> None:
        self.name = name
        self.wish = wish
        self.state = "starting"
        self.restarts = 0
        self.crash_restarts = 0
        """Of this host's time, for its metrics; `restarts` go over to other hosts."""
        self._claim = claim
        self._out = surroundings
        self._gate = gate
        self._files = surroundings.home.pipeline(name)
        self._over = over
        self._process: Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._stop_wanted = False
        self._suspending = False
        self._roused = asyncio.Event()
        self._steady = asyncio.Event()
        self._renewed = asyncio.Event()
        self._streak = 0
        self._began_ms = surroundings.clock.now_ms()
        self._insistence = Insistence(name, partial(self._ask, now=True), self._hard_limit_s)

    # ── beginnings ───────────────────────────────────────────────────────────

    async def start(self, sent: Sent | None = None) -> None:
        """Runs it because somebody asked: serves on return, and is desired from then on.

        `sent` are its texts, where they came with the start; they are in the home from here on.
        Raises: PipoError, with the process's reason or the home's; then nothing has changed.
        """
        try:
            if may_lack_a_word(self.wish):
                await journal_stopped(self._out, self.name, self.wish.file)
            if sent is not None:
                await asyncio.to_thread(keep, self._files, sent, self._out.config.workspace)
            async with self._gate.place(first=True):
                self._process = await self._launch()
            await self._desire(self._process)
        except BaseException:
            self._claim.release()
            raise
        self._begin()

    async def _desire(self, process: Process) -> None:
        """It is desired from now on; where that cannot be written, it is not left running."""
        try:
            self._say(desired="running", state="running", restart_times=(), error=None)
        except PipoError:
            process.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._hard_limit_s):
                    await process.exited()
                    raise
            process.signal(signal.SIGKILL)
            await process.exited()
            raise

    def adopt(self) -> None:
        """Watches a process that runs already."""
        self._steady.set()
        entry = registry.read(self._out.home, self.name)
        if entry is not None:
            self.restarts = entry.restarts
            self._began_ms = entry.started_at
        self._process = Adopted(self._files.lease)
        self._stop_wanted = self.wish.desired == "stopped"
        self._note(state="stopping" if self._stop_wanted else "running")
        _log.info("adopted", action="pipeline.adopt", pipeline=self.name)
        self._begin()
        if self._stop_wanted:
            # Who wanted it may have died, or found nobody, before the process heard of it.
            self._insistence.ask_until_heard(partial(self._ask, now=False))

    def restart(self) -> None:
        """Brings it up again, since it should run and does not."""
        # Until a process is on its way, a stop needs to wait for nothing.
        self._steady.set()
        entry = registry.read(self._out.home, self.name)
        self.restarts = (entry.restarts if entry else 0) + (1 if entry else 0)
        self._begin()

    @property
    def runs(self) -> bool:
        """Whether a process is there."""
        return self._process is not None

    @property
    def own(self) -> bool:
        """Whether it is this host's own child."""
        return self._process is not None and self._process.own

    @property
    def _detached(self) -> bool:
        """Whether it outlives its host (edge 447)."""
        return self._out.outlived and self.wish.detached

    def _begin(self) -> None:
        self._life = asyncio.create_task(self._live(), name=f"life of {self.name}")

    # ── the life ─────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        try:
            going = self._process is not None or await self._bring_up()
            while going:
                going = await self._one_run()
        except Exception as error:
            # A fault in the supervision of one pipeline never reaches the others.
            _log.error("not supervised any more", pipeline=self.name, exc_info=error)
            self.state = "failed"
        finally:
            self._steady.set()
            self._renewed.set()
            self._insistence.end()
            self._claim.release()
            self._over(self)

    async def _one_run(self) -> bool:
        """Waits for the process's end; whether another run follows."""
        assert self._process is not None
        # A process of ours served, so the start of its run stands in the journal: what comes
        # after that is its own word, whatever the clock did meanwhile.
        since_ms = 0 if self._process.own else self._began_ms
        found = await self._process.exited()
        self._process = None
        self._insistence.end()
        ending = await self._out.last_word(self._files, since_ms)
        self.wish = desired.read(self._files) or self.wish
        wanted = self._stop_wanted or self.wish.desired == "stopped"
        verdict = policy.judge(ending, stop_wanted=wanted, suspending=self._suspending)
        last_exit = None if found == Exit() else str(found)
        _log.info(
            "the process ended",
            action="pipeline.exit",
            pipeline=self.name,
            exit=str(found),
            verdict=verdict.value,
        )
        match verdict:
            case Verdict.STOPPED | Verdict.COMPLETED:
                self._settle(verdict.value, last_exit)
            case Verdict.FAILED:
                self._settle("failed", last_exit, error=ending.reason if ending else None)
            case Verdict.KILLED:
                await self._bury("killed", last_exit)
            case Verdict.SUSPENDED:
                self._note(state="stopped", last_exit=last_exit)
            case Verdict.RESUME:
                return await self._bring_up()
            case Verdict.CRASHED:
                return await self._after_crash(last_exit, f"the process ended with {found.told}")
        return False

    async def _after_crash(self, last_exit: str | None, error: str) -> bool:
        """Waits and brings it up again; whether it runs."""
        settings, clock = self._out.config.restart, self._out.clock
        now_ms = clock.now_ms()
        ran_s = (now_ms - self._began_ms) / 1000
        self._streak = policy.next_streak(self._streak, ran_s=ran_s, settings=settings)
        decided = policy.after_crash(
            self.wish.restart_times, now_ms=now_ms, streak=self._streak, settings=settings
        )
        self._streak += 1
        match decided:
            case GiveUp(restart_times):
                hint = f"see {self._files.log}, then: pipo start {self.name}"
                text = (
                    f"{error}; {len(restart_times)} restarts within {settings.window_s:g} s, {hint}"
                )
                self._note(
                    state="crashed", last_exit=last_exit, error=text, restart_times=restart_times
                )
                _log.error("given up", action="pipeline.crashed", pipeline=self.name, error=error)
                return False
            case Wait(delay_s, restart_times):
                self._note(
                    state="backoff", last_exit=last_exit, error=error, restart_times=restart_times
                )
                _log.warning(
                    "restarting",
                    action="pipeline.backoff",
                    pipeline=self.name,
                    delay_s=delay_s,
                    error=error,
                )
                await self._wait(delay_s + clock.jitter(delay_s * _JITTER))
        return await self._bring_up(crashes=1)

    async def _wait(self, delay_s: float) -> None:
        """The backoff; a stop or the host's end cuts it short."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._roused.wait()

    async def _bring_up(self, *, crashes: int = 0) -> bool:
        """A process runs, unless it is not wanted any more, or cannot; whether it does."""
        async with self._gate.place(until=self._roused):
            self.wish = desired.read(self._files) or self.wish
            if self._stop_wanted or self.wish.desired == "stopped":
                await self._bury("crashed", self.wish.last_exit)
                return False
            if self._suspending:
                self._note(state="stopped")
                return False
            self.restarts += crashes
            self.crash_restarts += crashes
            try:
                self._process = await self._launch(self.wish.error if crashes else None)
                failed = None
            except PipoError as error:
                failed = error
        if failed is not None:
            return await self._not_up(failed)
        self._note(state="running", error=None)
        self._renewed.set()
        # One that came up while this host lets go is left to the next.
        return not (self._suspending and self._detached)

    async def _not_up(self, error: PipoError) -> bool:
        if isinstance(error, Conflict) and leases.holder(self._files.lease) is not None:
            self._process = Adopted(self._files.lease)
            self._note(state="running", error=None)
            return True
        _log.error(
            "could not restart", action="pipeline.restart", pipeline=self.name, error=told(error)
        )
        if isinstance(error, PERMANENT):
            self._settle("failed", self.wish.last_exit, error=told(error))
            return False
        return await self._after_crash(self.wish.last_exit, told(error))

    async def _launch(self, crash: str | None = None) -> Process:
        self._began_ms = self._out.clock.now_ms()
        self.state = "starting"
        self._steady.clear()
        request = self._out.request(
            self.name,
            self.wish.file,
            restarts=self.restarts,
            options=self.wish.options,
            crash=crash,
        )
        try:
            process = await launch(self._out, request)
        finally:
            self._steady.set()
        if self._suspending and not self._detached:
            process.signal(signal.SIGTERM)
        return process

    # ── ends ─────────────────────────────────────────────────────────────────

    async def stop(self, *, now: bool, drain_s: float) -> tuple[str, bool]:
        """Stops it: the state it is in then (draining or stopped), and whether it was so already.

        `drain_s` is how long the pipeline itself may drain; beyond that the stop gets harsher.
        Raises: PipoError, if an adopted process does not answer or the home cannot be written;
            then nothing has changed.
        """
        await self._steady.wait()
        before, process = self.wish, self._process
        self._say(desired="stopped", state="stopping")
        self._stop_wanted = True
        if process is None:
            self._roused.set()
            await self.finished()
            return "stopped", False
        try:
            already = await self._ask(now=now)
        except PipoError as error:
            if not process.own:
                self._stop_wanted = before.desired == "stopped"
                self._note(desired=before.desired, state="unreachable")
                raise Unavailable(
                    f"{self.name} does not answer: {error.message}",
                    hint="it is not ended by force, since this host did not start it",
                ) from error
            already, now = False, True
        grace_s = 0.0 if now else drain_s
        self._insistence.begin(process, grace_s + self._hard_limit_s, asked=now)
        if not now:
            return "draining", already
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._hard_limit_s * 3):
                await self.finished()
                return "stopped", False
        return "stopping", already

    async def renew(self, options: Options, *, drain_s: float, wait_s: float) -> bool:
        """Drains a running one and brings it up again; False while it still drains after `wait_s`.

        `options` hold from the new run on. It is desired all the while: a host that dies in
        between leaves the start to the next.
        Cancelled: it goes on. Raises: PipoError, if it does not answer (then nothing has
            changed), or was stopped meanwhile.
        """
        await self._steady.wait()
        process, before = self._process, self.wish
        entry = registry.read(self._out.home, self.name)
        if process is None or entry is None:
            raise Unavailable(f"{self.name} is {self.state}", hint="try again in a moment")
        self._renewed.clear()
        # Said first: an idle one is gone, and up again, before its answer is here.
        self._say(state="stopping", options=options)
        try:
            await self._out.calls.restart(entry.address, self.name)
        except PipoError:
            if self._process is process:
                self._note(state=before.state, options=before.options)
            raise
        # Beyond its time it is suspended, which ends in a start too.
        self._insistence.begin(process, drain_s + self._hard_limit_s, asked=True)
        try:
            async with asyncio.timeout(wait_s):
                await self._renewed.wait()
        except TimeoutError:
            return False
        if not self.runs:
            raise Unavailable(
                f"{self.name} did not start again: {self.wish.error or self.state}",
                hint=f"see {self._files.log}, then: pipo start {self.name}",
            )
        return True

    async def attach(self) -> None:
        """From now on it ends with its services, as if it had not been started detached.

        Raises: PipoError, if the home cannot be written; then nothing has changed.
        """
        await self._steady.wait()
        if self.wish.detached:
            options = {key: said for key, said in self.wish.options.items() if key != "detached"}
            self._say(options=options, state=self.state)
            _log.info("attached", action="pipeline.attach", pipeline=self.name)

    def suspend(self) -> None:
        """Begins the end of this host: own processes suspend, detached and adopted ones are let go."""
        self._suspending = True
        self._roused.set()
        if self._process is not None and self._process.own and not self._detached:
            self._process.signal(signal.SIGTERM)
        elif self._process is not None and self._life is not None:
            self._life.cancel()

    def hurry(self) -> None:
        """A second signal to the own process: at once."""
        if self._process is not None and self._suspending and not self._detached:
            self._process.signal(signal.SIGTERM)

    async def finished(self) -> None:
        """Its life under this host is over. Cancelled: it goes on."""
        if self._life is not None:
            await asyncio.wait({self._life})

    async def dissolve(self) -> None:
        """Ends a backoff without a word, for a new start; the claim is free on return."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})

    async def probe(self) -> None:
        """Whether an adopted process answers, as its state says from then on."""
        if (
            self._process is None
            or self._process.own
            or self.state not in ("running", "unreachable")
        ):
            return
        entry = registry.read(self._out.home, self.name)
        there = entry is not None and await self._out.calls.answers(entry.address, self.name)
        if self._process is not None and self.state in ("running", "unreachable"):
            self.state = "running" if there else "unreachable"

    @property
    def _hard_limit_s(self) -> float:
        """What one step of a stop may take."""
        return self._out.config.stop_timeout_s + STOP_MARGIN_S

    async def _ask(self, *, now: bool) -> bool:
        entry = registry.read(self._out.home, self.name)
        if entry is None:
            raise Unavailable(f"no registry entry says where {self.name} is")
        return await self._out.calls.stop(entry.address, self.name, now=now)

    async def _bury(self, reason: str, last_exit: str | None) -> None:
        """Journals the stop in the process's place, then settles."""
        try:
            await journal_stop(self._out, self.name, self.wish.file, reason)
        except (PipoError, TimeoutError) as error:
            _log.warning(
                "the stop could not be journaled",
                action="pipeline.epitaph",
                pipeline=self.name,
                error=str(error),
            )
        self._settle("stopped", last_exit)

    def _settle(self, state: str, last_exit: str | None, error: str | None = None) -> None:
        self._note(desired="stopped", state=state, last_exit=last_exit, error=error)
        registry.remove(self._out.home, self.name)

    def _say(self, **changes: object) -> None:
        """What is desired and how it stands, kept in the home.

        Raises: PipoError, if the home cannot be written; then nothing has changed.
        """
        wish = self._changed(changes)
        desired.write(self._files, wish)
        self.wish, self.state = wish, wish.state

    def _note(self, **changes: object) -> None:
        """The same where nobody waits for it: a full disk never ends the supervision."""
        self.wish = self._changed(changes)
        self.state = self.wish.state
        try:
            desired.write(self._files, self.wish)
        except PipoError as error:
            _log.error(error.message, action="desired.write", pipeline=self.name, hint=error.hint)

    def _changed(self, changes: Mapping[str, object]) -> Desired:
        return replace(self.wish, runner=self._out.runner_id, **changes)  # type: ignore[arg-type]
