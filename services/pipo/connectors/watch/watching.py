"""One watch input: looks, and tells what it sees, in path order, as fast as packets are taken.

A refused packet stops the telling at its path; a second later it goes on there. Nothing is kept
in between but the snapshot: whatever was not told is found again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import Any, TypeVar

from pipo.connectors.contract import (
    Arrival,
    InputContext,
    InputSpec,
    RefusedArrival,
    RejectedArrival,
)
from pipo.connectors.watch.folder import Folder, Seen, is_unmounted
from pipo.connectors.watch.globs import BadGlob, Glob, compile_glob
from pipo.connectors.watch.notices import Notices
from pipo.connectors.watch.packets import Packets
from pipo.connectors.watch.snapshot import (
    MOUNT,
    PATTERN,
    Change,
    Snapshot,
    commits,
    entry,
    readable,
    told_by,
)
from pipo.connectors.watch.surroundings import Surroundings
from pipo.errors import BadRequest, InvalidState, PipoError

T = TypeVar("T")

# Packets and entries of one commit.
BATCH = 100
ENTRIES = 1000
# Names that are looked at in one go; beyond these many notices everything is looked at.
NAMES = 1000
NOTICES_MAX = 10_000
# A start, or a moment's load, is no news.
WAITS_UNTOLD = 2
TOLD_MAX = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """How often is looked. Looks at everything take at most a tenth of a processor's time while
    folders come and go, and a fiftieth else."""

    settle_s: float = 0.5
    """How long a file must stay as it is: longer than a writer rests between two writes."""
    rescan_s: float = 10.0
    """A pipeline that rests has no busier timer (design §7)."""
    buffer_pause_s: float = 1.0
    busy_share: float = 0.1
    resting_share: float = 0.02


class _Stopping(Exception):
    """The input ends; what it waited for was given up."""


class Watching:
    """One input's look at its files, from the first to the last."""

    def __init__(
        self,
        spec: InputSpec,
        context: InputContext,
        notices: Notices,
        stop: asyncio.Event,
        timing: Timing,
    ) -> None:
        self.name = spec.name
        self._context = context
        self._clock = context.clock
        self._stop = stop
        self._timing = timing
        self._glob = _glob(spec, context)
        self._events = frozenset(spec.settings.get("events", ("create", "change")))
        self._packets = Packets(spec, self._glob)
        self._around = Surroundings(self._glob, notices, self)
        self._folder = Folder(self._glob, self._around.cover)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"watch {spec.name}")
        self._snapshot = Snapshot({}, settle_s=timing.settle_s)
        self._mount = "/"
        self._unmounted = False
        self._wake = asyncio.Event()
        self._noticed: set[str] = set()
        self._everything = True
        self._everything_at = 0.0
        self._not_before = 0.0
        self._batch = BATCH
        self._refusals = 0
        self._pause_s = 0.0
        self._troubles: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}

    # ── the first look ───────────────────────────────────────────────────────

    async def open(self) -> None:
        """Knows what was told; on the first start, or for another glob, all that is there now.

        Raises: PipoError.
        """
        state = await self._context.intake.state(self.name)
        if state.get(PATTERN) == self._glob.text:
            self._mount = state.get(MOUNT, "/")
            self._snapshot = Snapshot(told_by(state), settle_s=self._timing.settle_s)
        else:
            await self._baseline(state)

    async def _baseline(self, state: Mapping[str, str]) -> None:
        """The pattern comes last: a baseline that was cut short is none."""
        began = self._clock.monotonic()
        seen = await self._run(partial(self._look_everywhere, {}))
        if "" in seen.closed:
            raise InvalidState(
                f"input '{self.name}': {readable(self._glob.root)} cannot be read: "
                f"{seen.closed['']}",
                hint="a first start must see what is there; give Pipo leave to read the folder",
            )
        told = {name: stamp for name, stamp in seen.found.items() if stamp is not None}
        moved: dict[str, str | None] = dict.fromkeys(state)
        for name, stamp in told.items():
            moved |= entry(name, stamp)
        parts = commits(moved, ENTRIES)
        if len(parts) > 1:
            await self._context.intake.remember(self.name, {PATTERN: None})
        for part in parts[:-1]:
            await self._context.intake.remember(self.name, part)
        self._mount = seen.mount or "/"
        last = {PATTERN: self._glob.text, MOUNT: self._mount}
        await self._context.intake.remember(self.name, parts[-1] | last)
        self._snapshot = Snapshot(told, settle_s=self._timing.settle_s)
        self._looked_everywhere(began)
        self._everything = False
        self._trouble(_troubles(seen))
        self._log("info", "baseline", "watch_baseline", files=len(told))

    # ── notices, on the event loop ───────────────────────────────────────────

    def noticed(self, folder: str, name: str) -> None:
        """A file of a folder (notices.Listener)."""
        found = self._around.name_of(folder, name)
        if found == "":
            self.noticed_anywhere()
        elif found is not None and self._glob.takes(found):
            self._noticed.add(found)
            if len(self._noticed) > NOTICES_MAX:
                self._everything = True
            self._wake.set()

    def noticed_anywhere(self) -> None:
        """A folder, or more than can be told (notices.Listener)."""
        self._everything = True
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    # ── the loop ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Looks until the stop."""
        with suppress(_Stopping):
            while not self._stop.is_set():
                try:
                    await self._look()
                except PipoError as error:
                    self._refused(error.message)
                except Exception as error:
                    # Whatever it is: what was not told is found again.
                    self._log("error", "the look failed", "watch_failed", reason=repr(error))
                    self._pause_s = self._timing.rescan_s
                await self._rest()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _rest(self) -> None:
        """Until the next look is due, or something is noticed."""
        pause_s, self._pause_s = self._pause_s, 0.0
        if pause_s:
            await _set_within(self._stop, pause_s)
            return
        now = self._clock.monotonic()
        due = [self._everything_at]
        due += [self._not_before] if self._everything else []
        if not self._unmounted:
            due += [now] if self._noticed else []
            moved = self._snapshot.next_due()
            due += [] if moved is None else [moved]
        if min(due) > now:
            await _set_within(self._wake, min(due) - now)
        self._wake.clear()

    async def _look(self) -> None:
        began = self._clock.monotonic()
        if began >= self._everything_at or (self._everything and began >= self._not_before):
            seen = await self._look_at_all(began)
            if seen is None:
                return
        elif self._unmounted:
            return
        else:
            due = self._snapshot.due(began, NAMES)
            names, self._noticed = self._noticed.union(due), set()
            if not names:
                return
            seen = await self._run(partial(self._folder.look, names))
            gone = is_unmounted(self._mount, seen.mount)
            for name in names if gone else seen.untold:
                self._snapshot.leave(name)
            if gone:
                self._everything = True
                return
            self._trouble(_troubles(seen), more=True)
        ended = self._clock.monotonic()
        see = partial(self._snapshot.see, began=began, ended=ended)
        seen_changes = (see(name, stamp) for name, stamp in seen.found.items())
        changes = [change for change in seen_changes if change is not None]
        await self._tell(sorted(changes, key=lambda change: change.name))

    async def _look_at_all(self, began: float) -> Seen | None:
        """What differs; None while the folder's mount is gone: then nothing can be told."""
        # Before the look: what happens meanwhile is noticed anew.
        self._everything, self._noticed = False, set()
        seen = await self._run(partial(self._look_everywhere, self._snapshot.told))
        self._looked_everywhere(began)
        self._unmounted = bool(
            not seen.count and self._snapshot.told and is_unmounted(self._mount, seen.mount)
        )
        troubles = _troubles(seen)
        if self._unmounted:
            troubles[self._mount] = "no longer mounted: its files are left as they were known"
        if self._around.unnoticed:
            troubles["changes are found by looking only"] = self._around.unnoticed
        self._trouble(troubles)
        if self._unmounted:
            return None
        if seen.count and seen.mount not in (None, self._mount):
            await self._context.intake.remember(self.name, {MOUNT: seen.mount})
            self._mount = seen.mount
        for name in self._snapshot.moving():
            if name not in seen.found and not seen.hides(name):
                self._snapshot.leave(name)
        self._unreadable = {n: why for n, why in self._unreadable.items() if n in seen.found}
        return seen

    def _look_everywhere(self, told: Mapping[str, Any]) -> Seen:
        """On the input's thread."""
        place = self._around.cover_root()
        seen = self._folder.compare(told)
        self._around.keep(seen.folders | {place})
        return seen

    def _looked_everywhere(self, began: float) -> None:
        """Arms the next one, at a time that all inputs of a process share."""
        now, timing = self._clock.monotonic(), self._timing
        took_s = now - began
        rest_s = max(timing.rescan_s, took_s / timing.resting_share)
        self._everything_at = floor((now + rest_s) / timing.rescan_s) * timing.rescan_s
        self._not_before = now + took_s / timing.busy_share

    # ── telling ──────────────────────────────────────────────────────────────

    async def _tell(self, changes: Sequence[Change]) -> None:
        """Makes packets of the changes that are asked for; the others only move the snapshot."""
        silent = [change for change in changes if change.kind not in self._events]
        for at in range(0, len(silent), ENTRIES):
            await self._tell_silently(silent[at : at + ENTRIES])
        left = [change for change in changes if change.kind in self._events]
        while left and not self._stop.is_set() and not self._pause_s:
            batch = await self._run(partial(self._packets.prepare, left[: self._batch]))
            left = left[batch.used :]
            for name, why in batch.unreadable.items():
                self._snapshot.leave(name)
                if self._unreadable.get(name) != why:
                    self._left_out(self._shown(name), why)
            self._unreadable |= batch.unreadable
            if batch.ready:
                await self._take(batch.ready)
            if not self._pause_s:
                for message, action, name in batch.remarks:
                    self._log("warn", message, action, file=self._shown(name))

    async def _tell_silently(self, changes: Sequence[Change]) -> None:
        state = {key: value for change in changes for key, value in change.state.items()}
        await self._context.intake.remember(self.name, state)
        for change in changes:
            self._snapshot.tell(change)

    async def _take(self, ready: Sequence[tuple[Change, Arrival]]) -> None:
        """Each that is on disk is told; after a refusal the rest waits."""
        taken = await self._context.intake.take([one for _, one in ready])
        refusal = ""
        for (change, _), result in zip(ready, taken, strict=True):
            if isinstance(result, RefusedArrival):
                refusal = result.message
                continue
            self._snapshot.tell(change)
            if isinstance(result, RejectedArrival):
                file = self._shown(change.name)
                self._log(
                    "warn", "file rejected", "file_rejected", file=file, reason=result.message
                )
        if refusal:
            self._refused(refusal)
        else:
            self._batch, self._refusals = BATCH, 0

    def _refused(self, reason: str) -> None:
        """The files wait, and so does the look for others; then one is tried first."""
        self._batch, self._pause_s = 1, self._timing.buffer_pause_s
        self._refusals += 1
        if self._refusals == WAITS_UNTOLD:
            self._log("warn", "files wait", "files_wait", reason=reason)

    # ── words ────────────────────────────────────────────────────────────────

    def _trouble(self, found: dict[str, str], *, more: bool = False) -> None:
        """Tells each trouble once, until a look at everything finds it gone."""
        new = [item for item in found.items() if self._troubles.get(item[0]) != item[1]]
        self._troubles = self._troubles | found if more else found
        for what, why in new[:TOLD_MAX]:
            self._left_out(what, why)
        if len(new) > TOLD_MAX:
            rest = len(new) - TOLD_MAX
            self._log("warn", "more are left out for now", "files_left_out", files=rest)

    def _left_out(self, what: str, why: str) -> None:
        self._log("warn", "left out for now", "file_left_out", file=what, reason=why)

    def _shown(self, name: str) -> str:
        return readable(self._glob.shown(name))

    def _log(self, level: str, message: str, action: str, **keys: Any) -> None:
        self._context.log(level, message, action=action, input=self.name, **keys)

    async def _run(self, work: Callable[[], T]) -> T:
        """What `work` returns, on the input's thread. Raises: _Stopping, when the stop comes first."""
        asked = asyncio.wrap_future(self._thread.submit(work))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((asked, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                asked.add_done_callback(_ignore)
                raise _Stopping
            return asked.result()
        finally:
            stopped.cancel()


def _glob(spec: InputSpec, context: InputContext) -> Glob:
    """Raises: BadRequest."""
    try:
        return compile_glob(str(spec.settings["path"]), str(context.folder.absolute()))
    except BadGlob as error:
        raise BadRequest(f"input '{spec.name}': {error}", hint="write a simpler `path`") from None


def _troubles(seen: Seen) -> dict[str, str]:
    """What could not be looked at, by name, and why."""
    troubles = {readable(folder) or ".": why for folder, why in seen.closed.items()}
    troubles |= {readable(name): "it cannot be looked at" for name in seen.untold}
    outside = "a link that leads out of the watched folder"
    return troubles | {readable(name): outside for name in seen.outside}


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _ignore(asked: asyncio.Future[Any]) -> None:
    """An answer that nobody waits for any more."""
    if not asked.cancelled():
        asked.exception()
