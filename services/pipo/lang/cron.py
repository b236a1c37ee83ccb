"""Cron schedules: five strict fields, read in a time zone.

cronsim finds the matching wall-clock minutes; what it would accept and we do not
(names, `L`, `#`, seconds) is refused first. How the clock's changes are met is
decision 27, and ours: an entry that leaves out an hour of the day runs by the
wall clock, where a time that is skipped falls on the change and one that comes
twice counts once, the first time; an entry for all 24 hours runs on through both.
cronsim itself only ever sees wall-clock times without a zone: beside a change of
half an hour it would step over a minute that matches.

Source: facts §3; decision 27.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from pipo.lang.values import WHITE_SPACE

_BLANKS = re.compile(f"[{re.escape(WHITE_SPACE)}]+")
_ITEM = re.compile(r"(?:(\*)|([0-9]{1,4})(?:-([0-9]{1,4}))?)(?:/([0-9]{1,4}))?")
_DAY = timedelta(days=1)
_RARE = timedelta(days=3653)
"""A schedule whose fires are all further apart than this never fires, for us."""


class BadCron(ValueError):
    """A schedule or zone that cannot be read; `hint` is the way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int


FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12),
    _Field("weekday", 0, 7),
)


class Cron:
    """A schedule.

    Raises: BadCron, naming the field at fault, for a text that is no schedule,
        never fires, or for an unknown zone.
    """

    def __init__(self, text: str, timezone: str = "UTC") -> None:
        self.text = text
        self.zone = _zone(timezone)
        fields = _BLANKS.split(text.strip(WHITE_SPACE)) if text.strip(WHITE_SPACE) else []
        if len(fields) != len(FIELDS):
            raise BadCron(
                f"cron {text[:60]!r} has {len(fields)} field{'s' * (len(fields) != 1)}, not 5",
                "minute, hour, day of month, month, weekday: `30 6 * * 1-5`",
            )
        sets = [_values(text, field) for text, field in zip(fields, FIELDS, strict=True)]
        self._by_wall_clock = len(sets[1]) < 24
        self._spec = " ".join(map(_respelled, fields, sets))
        _refuse_never(text, self._spec)

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, {self.zone.key!r})"

    def next_after(self, after_ms: int) -> int:
        """The first fire strictly after a moment.

        Units: milliseconds since the epoch.
        """
        moment = datetime.fromtimestamp(after_ms // 1000, tz=UTC)
        walk = self._wall_clock if self._by_wall_clock else self._hourly
        return next(at for at in walk(moment.astimezone(self.zone)) if at > after_ms)

    def _hourly(self, start: datetime) -> Iterator[int]:
        """The fires of one offset after the other, each on its own stretch of wall clock."""
        at: datetime | None = start.astimezone(UTC)
        while at:
            offset, change = _offset(at, self.zone), None
            # cronsim begins behind where it starts, and the minute of a change may match.
            wall = (at + offset).replace(tzinfo=None) - timedelta(minutes=1)
            for fire in CronSim(self._spec, wall):
                instant = fire.replace(tzinfo=UTC) - offset
                change = _next_change(at, instant, self.zone)
                if change:
                    break
                yield _epoch_ms(instant)
                at = instant
            at = change

    def _wall_clock(self, start: datetime) -> Iterator[int]:
        for wall in CronSim(self._spec, start.replace(tzinfo=None)):
            yield _epoch_ms(self._instant(wall))

    def _instant(self, wall: datetime) -> datetime:
        """When a wall-clock time is; for one that is skipped, when the clock changes."""
        local = wall.replace(tzinfo=self.zone)
        instant = local.astimezone(UTC)
        if instant.astimezone(self.zone).replace(tzinfo=None) == wall:
            return instant
        # The gap is as wide as the offsets differ: a day at most.
        return _change(instant - _DAY, instant + _DAY, self.zone)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def _next_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """The first change of the clock after a moment and up to another; offsets last for days."""
    offset = _offset(after, zone)
    low = after
    while low < until:
        high = min(low + _DAY, until)
        if _offset(high, zone) != offset:
            return _change(low, high, zone)
        low = high
    return None


def _change(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """When the clock changes between two moments; a whole minute."""
    before = _offset(low, zone)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        if _offset(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high.replace(second=0, microsecond=0)


def _epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        known = sorted(available_timezones())
        close = get_close_matches(name[:60], known, 1, 0.6)
        raise BadCron(
            f"there is no time zone {name[:60]!r}",
            f"did you mean `{close[0]}`?" if close else "an IANA name such as Europe/Paris",
        ) from None


def _values(text: str, field: _Field) -> frozenset[int]:
    """All values of a field."""
    found: set[int] = set()
    for item in text.split(","):
        found |= _item(item, field)
    return frozenset(found)


def _item(item: str, field: _Field) -> set[int]:
    bounds = f"{field.name} takes {field.low}-{field.high}, `*`, lists, ranges and steps"
    read = _ITEM.fullmatch(item)
    if read is None:
        raise BadCron(f"cron {field.name}: {item[:40]!r} cannot be read", bounds)
    star, first, last, step = read.groups()
    low = field.low if star else int(first)
    high = int(last) if last else low
    if star or (step and not last):
        high = field.high
    for value in (low, high):
        if not field.low <= value <= field.high:
            raise BadCron(f"cron {field.name}: {value} is out of range", bounds)
    if high < low:
        raise BadCron(f"cron {field.name}: the range {item} runs backwards", bounds)
    if step and int(step) == 0:
        raise BadCron(f"cron {field.name}: the step of {item} is 0", bounds)
    return set(range(low, high + 1, int(step or 1)))


def _respelled(text: str, values: frozenset[int]) -> str:
    """The field as plain numbers, which leave cronsim nothing to interpret.

    A leading `*` is kept: it says how the two day fields combine.
    """
    numbers = ",".join(map(str, sorted(values)))
    if not text.startswith("*"):
        return numbers
    first = text.partition(",")[0]
    return first if first == "*" else f"{first},{numbers}"


@lru_cache(maxsize=256)
def _fires(spec: str) -> bool:
    """Whether two fires are ever within ten years; leap days and weekdays repeat after forty."""
    start = datetime(2000, 1, 1)
    try:
        walk = list(islice(CronSim(spec, start), 12))
    except CronSimError:
        return False
    return any(later - earlier <= _RARE for earlier, later in pairwise(walk))


def _refuse_never(text: str, spec: str) -> None:
    if not _fires(spec):
        raise BadCron(f"cron {text[:60]!r} never fires", "no year has such a day")
