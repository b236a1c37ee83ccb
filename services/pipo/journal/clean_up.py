"""The clean-up: what is past its age goes, in small batches between everything else.

Idea. A pass looks for old rows through the reader, oldest first, and hands them to the
journal as changes like any others, so they share its fence, its counters and its order.
Age is the time since a unit settled, and only what is strictly older goes (edge 331). A
batch grows while its commit is quick and shrinks when it is not, and between two batches
the pass rests longer than the last one took: pushes stay quick meanwhile (L051).

A packet that moved again between the look and the commit is refused there, alone.

What was cleared stays in the index of settled rows until `trail` is over, so a pass
remembers up to where everything is cleared; the first one of a run looks at all of it.

Compaction follows once a day: the free pages that deletions left are given back in steps,
then the WAL is folded away on a connection of its own.
Source: edge 332-340, L045-L053, design §11.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipo.clock import Clock
from pipo.errors import Unavailable
from pipo.journal.changes import (
    DEAD_LETTERED,
    DELIVERED,
    FILTERED,
    REJECTED,
    Cleared,
    Compacted,
    Expired,
)
from pipo.journal.lifecycle import LAST_COMPACTION
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import Journal
from pipo.lang.model import Retention

# A batch's commit should take about so long, a quarter of what it may (L051): what comes meanwhile
# waits for it at its acceptance, at its write and at its end.
STEP_S: Final = 0.012
# Times what the last batch took: so long the others go first.
REST_TIMES: Final = 2.0
BATCH_FIRST: Final = 64
BATCH_MAX: Final = 256
# Batches after which the WAL is folded beside the writer: one that fills up is folded by the
# commit that fills it, which then takes long.
FOLD_EVERY: Final = 8
FOLD_ATTEMPTS: Final = 20
# Rows that one look brings.
LOOK_ROWS: Final = 1_024
PAGES_FIRST: Final = 64
PAGES_MAX: Final = 4_096
VAIN_STEPS_MAX: Final = 100
DAY_MS: Final = 86_400_000

# Settled units of one state from a place on, oldest first, and whether they hold a payload.
SETTLED_UNITS: Final = """
SELECT settled_at, rowid, id, data IS NOT NULL OR result IS NOT NULL
FROM units INDEXED BY units_settled
WHERE settled_at IS NOT NULL AND state = ?1 AND (settled_at, rowid) > (?2, ?3)
    AND settled_at < ?4
ORDER BY settled_at, rowid LIMIT ?5
"""
# Packets among them.
SETTLED_PACKETS: Final = SETTLED_UNITS.replace("WHERE", "WHERE root IS NULL AND", 1)


class NoRoom(Unavailable):
    """The disk has no room for what a compaction needs while it runs."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What one pass did: units whose payload went, packets that went."""

    cleared: int
    deleted: int


class _Pace:
    """How much the next step takes, by how long the last one took."""

    def __init__(self, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    def took(self, seconds: float) -> None:
        if seconds > STEP_S:
            self.size = max(1, self.size // 2)
        elif seconds < STEP_S / 2:
            self.size = min(self._most, self.size * 2)


class CleanUp:
    """The clean-up of one journal. A pass may be cancelled at any time: what it did stands."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._cleared_until: dict[str, int] = {}
        self._batches = 0
        self._pace = _Pace(BATCH_FIRST, BATCH_MAX)

    async def run(self, keep: Retention) -> Cleaned:
        """One pass (edge 332). Raises: Unavailable, when the journal is too busy; JournalFailed."""
        now = self._clock.now_ms()
        cleared = 0
        for state, age_ms in (
            (DELIVERED, keep.data_ms),
            (FILTERED, keep.data_ms),
            (REJECTED, keep.rejected_ms),
        ):
            cleared += await self._clear(state, int(now - age_ms))
        deleted = 0
        for state in (DELIVERED, FILTERED, REJECTED):
            deleted += await self._delete(state, int(now - keep.trail_ms))
        if keep.dlq_ms is not None:
            deleted += await self._delete(DEAD_LETTERED, int(now - keep.dlq_ms))
        return Cleaned(cleared, deleted)

    async def compact(self) -> bool:
        """Gives free space back, at most once a day; whether it did (edge 339).

        No full VACUUM follows: it would copy the whole journal, and hold up every commit
        meanwhile, to win what half-filled pages hold; rows go oldest first, so few are.
        Raises: NoRoom, with a disk too full for a step; Unavailable, when the journal is too
            busy; JournalFailed.
        """
        now = self._clock.now_ms()
        found = await self._journal.rows.rows(
            "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (LAST_COMPACTION,)
        )
        last = found[0][0] if found else None
        if last is None or last > now:
            # The first start, or the clock was set back: the day begins now.
            await self._journal.commit(Compacted(now))
            return False
        if now - last < DAY_MS:
            return False
        await self._require_room()
        await self._give_back()
        # The file shrinks with a fold that meets no newer frame; at worst a later one does it.
        for _ in range(FOLD_ATTEMPTS):
            if await self._journal.fold():
                break
        await self._journal.commit(Compacted(now))
        return True

    async def _require_room(self) -> None:
        """The pages that a step moves lie in the WAL and in the database until they are folded.

        Raises: NoRoom.
        """
        ((free,),) = await self._journal.rows.rows("PRAGMA freelist_count")
        ((page_bytes,),) = await self._journal.rows.rows("PRAGMA page_size")
        needed, there = 2 * min(free, PAGES_MAX) * page_bytes, self._journal.disk_left()
        if there < needed:
            raise NoRoom(
                f"compacting the journal needs {needed:,} bytes and its disk has {there:,} left",
                hint="it is tried again; make room on the disk",
            )

    async def _give_back(self) -> None:
        """Returns all free pages, as long as that gets on: others free and take some meanwhile."""
        pace = _Pace(PAGES_FIRST, PAGES_MAX)
        fewest, vain = sys.maxsize, 0
        while fewest and vain < VAIN_STEPS_MAX:
            began = self._clock.monotonic()
            left = await self._journal.give_back(pace.size)
            vain = 0 if left < fewest else vain + 1
            fewest = min(left, fewest)
            await self._rest(pace, began)

    async def _clear(self, state: str, before: int) -> int:
        since = self._cleared_until.get(state, 0)
        count = await self._walk(
            SETTLED_UNITS,
            state,
            0 if since > before else since,
            before,
            lambda unit, full: Cleared(unit, before) if full else None,
        )
        self._cleared_until[state] = before
        return count

    async def _delete(self, state: str, before: int) -> int:
        return await self._walk(
            SETTLED_PACKETS, state, 0, before, lambda unit, _: Expired(unit, before)
        )

    async def _walk(
        self,
        query: str,
        state: str,
        since: int,
        before: int,
        change_of: Callable[[str, bool], Cleared | Expired | None],
    ) -> int:
        """How many units of that state settled before `before` were changed."""
        count = 0
        place = (since - 1, 0)
        while True:
            found = await self._journal.rows.rows(query, (state, *place, before, LOOK_ROWS))
            if not found:
                return count
            place = found[-1][0], found[-1][1]
            changes = [change_of(unit, bool(full)) for _, _, unit, full in found]
            due = [change for change in changes if change is not None]
            while due:
                batch, due = due[: self._pace.size], due[self._pace.size :]
                count += await self._commit(batch)

    async def _commit(self, changes: Sequence[Cleared | Expired]) -> int:
        began = self._clock.monotonic()
        try:
            await self._journal.commit(*changes)
            count = len(changes)
        except IllegalChange:
            count = 0
            for change in changes:
                count += await self._commit_alone(change)
        await self._rest(self._pace, began)
        self._batches += 1
        if self._batches % FOLD_EVERY == 0:
            await self._journal.fold()
        return count

    async def _commit_alone(self, change: Cleared | Expired) -> int:
        try:
            await self._journal.commit(change)
        except IllegalChange:
            return 0
        return 1

    async def _rest(self, pace: _Pace, began: float) -> None:
        """Lets the others go first."""
        took = self._clock.monotonic() - began
        pace.took(took)
        await asyncio.sleep(took * REST_TIMES)
