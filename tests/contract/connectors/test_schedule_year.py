"""The schedule input driven through a year, against another library's reading of cron.

croniter reads wall-clock times without a zone. Where a zone is given, what it finds is
turned into instants by decision 27, spelled out here once more: a time that is skipped is
the change of the clocks, one that comes twice is the first.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from pipo.clock import SystemClock, iso
from pipo.connectors.contract import Arrival, InputSpec, Taken
from pipo.connectors.schedule import ticking
from pipo.connectors.schedule.input import ScheduleInputs
from tests.contract.connectors.intake import FakeIntake, input_context

DAY_MS = 86_400_000
NEW_YORK = "America/New_York"
# A leap year: 366 days, and February has a 29th.
YEAR = datetime(2028, 1, 1, tzinfo=UTC)
END = datetime(2028, 12, 31, 23, 59, 30, tzinfo=UTC)


def ms(moment: datetime | str) -> int:
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return round(found.timestamp() * 1000)


class Intake(FakeIntake):
    """Takes its time now and then; holds the journal's side of the bargain to account."""

    def __init__(self, drive: Drive) -> None:
        super().__init__()
        self._drive = drive
        self.taking = False

    async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        self.taking = True
        await asyncio.sleep(0)
        self._drive.clock.ms += self._drive.commit_ms()
        taken = await super().take(arrivals)
        self.taking = False
        return taken


class Clock(SystemClock):
    """Time that passes only where a test says so."""

    def __init__(self, at_ms: float) -> None:
        self.ms = at_ms

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000


class Drive:
    """A schedule that lives until `end_ms`; each wait is over a little late, each commit takes a while."""

    def __init__(self, start_ms: int, end_ms: int, *, seed: int = 0, slow: float = 0.0) -> None:
        self.clock = Clock(start_ms)
        self.intake = Intake(self)
        self.missed = 0
        self._end_ms = end_ms
        self._chance = random.Random(seed)
        self._slow = slow

    def commit_ms(self) -> float:
        if self._chance.random() < self._slow:
            return self._chance.choice((61_000, 3_600_000, 30 * 3_600_000))
        return self._chance.uniform(0, 20)

    async def live(self, until_ms: float | None = None, **settings: Any) -> None:
        """One run of the pipeline; the next one goes on at the same time, as after a crash."""
        end_ms = self._end_ms if until_ms is None else until_ms
        over = asyncio.Event()

        async def pause(stop: asyncio.Event, seconds: float) -> bool:
            # Nothing is armed before the tick before it is in the journal.
            assert not self.intake.taking
            if self.clock.ms + seconds * 1000 > end_ms:
                over.set()
                return await stop.wait()
            self.clock.ms += seconds * 1000 + self._chance.choice((-3, 0, 5))
            return False

        context = input_context(self.intake, clock=self.clock, log=self._log)
        inputs = ScheduleInputs([InputSpec("tick", settings, "json")], context, pause=pause)
        await inputs.open()
        # A year of minutes takes 25 s of processor time: what hangs is the timeout's of the test.
        await over.wait()
        await inputs.close()
        self.clock.ms = max(self.clock.ms, end_ms)

    def _log(self, level: str, message: str, **keys: Any) -> None:
        assert keys["action"] == "ticks_missed", keys
        self.missed += keys["missed"]

    @property
    def sources(self) -> list[str]:
        return [arrival.source for arrival in self.intake.arrivals]


def other_reading(
    text: str, zone: str, start: datetime, end: datetime, *, either: bool
) -> list[str]:
    """When the other library and decision 27 say that an entry fires, after `start`."""
    own = ZoneInfo(zone)
    first = start.astimezone(own).replace(tzinfo=UTC) - timedelta(minutes=1)
    walk, found = croniter(text, first, day_or=either), set[int]()
    while True:
        wall = walk.get_next(datetime).replace(tzinfo=None)
        instant = wall.replace(tzinfo=own).astimezone(UTC)
        if instant.astimezone(own).replace(tzinfo=None) != wall:
            # Skipped: the first minute after it that is on the clock.
            step = wall
            while instant.astimezone(own).replace(tzinfo=None) != step:
                step += timedelta(minutes=1)
                instant = step.replace(tzinfo=own).astimezone(UTC)
        if instant > end:
            return [iso(at) for at in sorted(found)]
        if instant > start:
            found.add(ms(instant))


@pytest.fixture
def long_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is over when the tick is due: a year is a wait for each tick."""
    monkeypatch.setattr(ticking, "SLEEP_MAX_S", 1e9)


TWENTY = [
    ("0 0 * * *", "UTC"),
    ("30 6 * * 1-5", "UTC"),
    ("15 3 1 * *", "UTC"),
    # Month ends: what has no 31st is left out; a leap day comes.
    ("0 12 31 * *", "UTC"),
    ("59 23 28-31 * *", "UTC"),
    ("0 9 29 2 *", "UTC"),
    ("0 0 30 1-3 *", "UTC"),
    # Both day fields: either may match, and a star makes both count.
    ("0 9 13 * 5", "UTC"),
    ("0 9 1,15 * 1", "UTC"),
    ("0 8 */2 * 1", "UTC"),
    ("20 4 1-7 * */2", "UTC"),
    # Sunday twice, steps from a value, lists.
    ("5 5 * * 0,7", "UTC"),
    ("5/25 2 * * 7", "UTC"),
    ("0 1/7 * 3/4 *", "UTC"),
    ("0,30 8-10,22 10-20/3 2,12 *", "UTC"),
    # Zones whose clocks change, by an hour or by half of one, at night or at midnight.
    ("30 2 * * *", NEW_YORK),
    ("30 1 * * *", NEW_YORK),
    ("*/20 1-2 * 3,11 *", NEW_YORK),
    ("15 2 * * *", "Australia/Lord_Howe"),
    ("0 0 * * *", "Africa/Cairo"),
]


@pytest.mark.parametrize(("text", "zone"), TWENTY)
@pytest.mark.usefixtures("long_sleeps")
async def test_a_year_of_ticks(text: str, zone: str) -> None:
    drive = Drive(ms(YEAR), ms(END), seed=len(text))
    await drive.live(cron=text, timezone=zone, payload={"n": 1})
    days = text.split()[2], text.split()[4]
    either = not any(field.startswith("*") for field in days)
    wanted = other_reading(text, zone, YEAR, END, either=either)
    assert drive.sources == wanted
    assert wanted
    assert drive.missed == 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "text", ["* * * * *", "*/5 * * * *", "7,11,13 * * * *", "0 */2 * * *", "30 * 29-31 * *"]
)
@pytest.mark.usefixtures("long_sleeps")
async def test_a_year_of_many_ticks(text: str) -> None:
    drive = Drive(ms(YEAR), ms(END))
    await drive.live(cron=text)
    assert drive.sources == other_reading(text, "UTC", YEAR, END, either=False)


@pytest.mark.usefixtures("long_sleeps")
async def test_ticks_that_are_missed_in_a_year_are_counted_and_never_made_up_for() -> None:
    """A slow commit lets ticks pass: each of the year's is taken once or counted once."""
    drive = Drive(ms(YEAR), ms(END), seed=7, slow=0.05)
    await drive.live(cron="0 */3 * * *")
    assert sorted(set(drive.sources)) == drive.sources
    # The last commit may have taken longer than the year.
    grid = [iso(ms(YEAR) + n * 3 * 3_600_000) for n in range(1, 366 * 8 + 100)]
    due = [at for at in grid if at <= iso(drive.clock.now_ms())]
    assert set(drive.sources) < set(due)
    assert len(drive.sources) + drive.missed == len(due)
    assert drive.missed > 300


@pytest.mark.usefixtures("long_sleeps")
async def test_runs_that_end_at_any_moment_repeat_no_tick() -> None:
    """A start takes what comes after it, so the year's ticks are those of its runs, each once."""
    chance, end = random.Random(3), ms(END)
    drive = Drive(ms(YEAR), end)
    while drive.clock.ms < end:
        # Now and then a second after a tick.
        stop = drive.clock.ms + chance.choice((5, 12, 24 * 30)) * 3_600_000 + 1000
        await drive.live(min(stop, end), cron="0 6 * * *", timezone=NEW_YORK)
    wanted = other_reading("0 6 * * *", NEW_YORK, YEAR, END, either=False)
    assert drive.sources == wanted


@pytest.mark.usefixtures("long_sleeps")
async def test_a_year_of_every_stays_on_its_grid() -> None:
    """Late waits and slow commits do not add up; the wall clock's changes mean nothing to it."""
    period_ms = 97 * 60_000 + 1
    drive = Drive(ms(YEAR), ms(YEAR) + 366 * DAY_MS, seed=5, slow=0.01)
    await drive.live(every=f"{period_ms}ms")
    count = 366 * DAY_MS // period_ms
    assert set(drive.sources) <= {iso(ms(YEAR) + n * period_ms) for n in range(1, count + 30)}
    assert sorted(set(drive.sources)) == drive.sources
    last = (ms(drive.sources[-1]) - ms(YEAR)) // period_ms
    assert last - len(drive.sources) <= drive.missed <= last - len(drive.sources) + 30
    assert drive.missed > 10


async def test_a_month_with_the_real_length_of_waits() -> None:
    """Far-away times do not fire early, in 86,400 waits of 30 s (edge 48)."""
    start = datetime(2028, 2, 1, tzinfo=UTC)
    drive = Drive(ms(start), ms(start) + 30 * DAY_MS)
    await drive.live(cron="0 12 29 2 *")
    assert drive.sources == ["2028-02-29T12:00:00.000Z"]


# ── field report R01 ─────────────────────────────────────────────────────────

SPRING = ("2027-03-13T00:00:00Z", "2027-03-15T23:59:00Z")
AUTUMN = ("2027-11-06T00:00:00Z", "2027-11-08T23:59:00Z")
R01 = [
    # A time that is skipped: once, at the change.
    (
        {"cron": "30 2 * * *", "timezone": NEW_YORK},
        SPRING,
        ["2027-03-13T07:30", "2027-03-14T07:00", "2027-03-15T06:30"],
    ),
    # One that comes twice: once, the first time.
    (
        {"cron": "30 1 * * *", "timezone": NEW_YORK},
        AUTUMN,
        ["2027-11-06T05:30", "2027-11-07T05:30", "2027-11-08T06:30"],
    ),
    ({"cron": "30 2 * * *"}, SPRING, [f"2027-03-{day}T02:30" for day in (13, 14, 15)]),
    ({"cron": "30 2 * * *"}, AUTUMN, [f"2027-11-0{day}T02:30" for day in (6, 7, 8)]),
]


@pytest.fixture(params=["", "Europe/London", NEW_YORK])
def machine_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The machine's own zone, as TZ sets it."""
    before = os.environ.get("TZ")
    if request.param:
        os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(("settings", "days", "wanted"), R01)
async def test_report_01_where_the_clocks_change(
    machine_zone: str, settings: dict[str, Any], days: tuple[str, str], wanted: list[str]
) -> None:
    """R01: a daily job is neither skipped in spring nor doubled in autumn, whatever TZ says."""
    drive = Drive(ms(days[0]), ms(days[1]))
    await drive.live(**settings)
    assert drive.sources == [f"{at}:00.000Z" for at in wanted]
    assert drive.missed == 0


@pytest.mark.parametrize("at", ["05:30:01", "05:59:00", "06:00:00", "06:29:59.999"])
async def test_report_01_a_restart_between_the_two_adds_no_second_run(at: str) -> None:
    drive = Drive(ms(AUTUMN[0]), ms(AUTUMN[1]))
    daily: dict[str, Any] = {"cron": "30 1 * * *", "timezone": NEW_YORK}
    await drive.live(ms(f"2027-11-07T{at}Z"), **daily)
    assert len(drive.sources) == 2
    await drive.live(**daily)
    assert drive.sources == [f"{at}:00.000Z" for at in R01[1][2]]
