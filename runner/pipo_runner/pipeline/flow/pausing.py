"""The pause of one pipeline: why it stands, what waits for its end, and who hears of both.

Idea. A pause is a reason. While there is one, no unit is taken and no verification offered;
what a step has in hand finishes, commits, and is put back in its place (edge 302). Intake
goes on. The gates shut before the pause is on disk, since shutting them early harms nobody;
they open only once its end is on disk.

What waits for the end: the units that a policy holds, each with the call that takes it up
again, and the calls that a restored pause put off. Both run when the pause is over, in the
order they came.

A pause outlives a crash and a suspension: the journal keeps its reason, and the next run
begins with it (edge 303). While the pipeline drains or ends nothing pauses it any more: a
unit that a policy would hold is held, and the run ends beside it (edge 156).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pipo.clock import Clock
from pipo.errors import PipoError
from pipo.journal.changes import Change, Paused, Resumed, Unheld
from pipo_runner.pipeline.flow.ledger import Ledger

# The reasons that may be asked for (edge 301).
MANUAL: Final = "manual"
AGENT: Final = "agent"
REQUESTED: Final = (MANUAL, AGENT)


class Pausing:
    """Whether one pipeline is paused. `reason` is the one that a restored pause begins with.

    `on_pause` and `on_resume` are called in order, without an await between a state and its
    listeners; a batch is flushed from the one, a clock begins anew from the other.
    """

    def __init__(
        self, *, journal: Ledger, clock: Clock, log: Callable[..., None], reason: str | None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._log = log
        self._reason = reason
        self._ending = False
        self._held: dict[str, Callable[[], None]] = {}
        self._later: list[Callable[[], None]] = []
        self.on_pause: list[Callable[[], None]] = []
        self.on_resume: list[Callable[[], None]] = []

    @property
    def reason(self) -> str | None:
        """Why it is paused; None when it is not."""
        return self._reason

    @property
    def held(self) -> int:
        """How many units a policy holds."""
        return len(self._held)

    # ── into the pause ───────────────────────────────────────────────────────

    def begin(self, reason: str) -> list[Change]:
        """The change that pauses, to be committed by whoever asks; none when it is paused already.

        Nothing more is taken from here on. The first reason stays (edge 138, 300).
        """
        if self._reason is not None or self._ending:
            return []
        self._reason = reason
        # Nobody is surprised by what they asked for.
        level = "info" if reason in REQUESTED else "warning"
        self._log(level, "pipeline paused", action="pipeline.paused", reason=reason)
        for listener in self.on_pause:
            listener()
        return [Paused(reason, self._clock.now_ms())]

    async def pause(self, reason: str) -> bool:
        """Whether it was paused already. The pause, whoever began it, is on disk on return.

        Cancelled: only the wait ends. Raises: Unavailable, when too many wait for the
            journal; then it runs on.
        """
        changes = self.begin(reason)
        try:
            await self._journal.commit(*changes)
        except PipoError:
            if changes:
                self._reason = None
                self._go_on()
            raise
        return not changes

    def hold(self, unit_id: str, again: Callable[[], None]) -> None:
        """The unit waits for the end of the pause, which calls `again`."""
        self._held[unit_id] = again

    def let_go(self, unit_id: str) -> None:
        """Another change has moved the unit meanwhile: the end of the pause is none of its own."""
        self._held.pop(unit_id, None)

    def later(self, call: Callable[[], None]) -> None:
        """Calls back when the pause is over; at once when there is none."""
        if self._reason is None:
            call()
        else:
            self._later.append(call)

    def end(self) -> None:
        """The pipeline drains or ends: nothing pauses it from now on."""
        self._ending = True

    # ── out of it ────────────────────────────────────────────────────────────

    async def resume(self) -> bool:
        """Whether it was not paused. The end of the pause is on disk on return.

        Cancelled: only the wait ends, the pipeline goes on. Raises: Unavailable, when too many
            wait for the journal; then it stays paused.
        """
        if self._reason is None:
            # Another's may be on its way to the disk still.
            await self._journal.commit()
            return True
        at = self._clock.now_ms()
        reason, held = self._reason, self._held
        self._reason, self._held = None, {}
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._journal.submit(
                Resumed(at),
                *(Unheld(unit, at) for unit in held),
                done=lambda error: self._resumed(held, durable, error),
            )
        except PipoError:
            self._reason, self._held = reason, held
            raise
        await durable
        return False

    def _resumed(
        self,
        held: dict[str, Callable[[], None]],
        durable: asyncio.Future[None],
        error: BaseException | None,
    ) -> None:
        if error is not None:
            if not durable.done():
                durable.set_exception(error)
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        self._log("info", "pipeline resumed", action="pipeline.resumed", held=len(held))
        for again in held.values():
            again()
        # Unless the next pause began while this one's end was on its way to the disk.
        if self._reason is None:
            self._go_on()
        if not durable.done():
            durable.set_result(None)

    def _go_on(self) -> None:
        later, self._later = self._later, []
        for call in later:
            call()
        for listener in self.on_resume:
            listener()
