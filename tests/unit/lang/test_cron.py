from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pipo.clock import iso
from pipo.lang.cron import BadCron, Cron

NEW_YORK = "America/New_York"


def fires(text: str, zone: str, after: str, count: int) -> list[str]:
    schedule = Cron(text, zone)
    at = round(datetime.fromisoformat(after).timestamp() * 1000)
    found = []
    for _ in range(count):
        at = schedule.next_after(at)
        found.append(iso(at)[:16])
    return found


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # A skipped time falls on the change, once.
        (
            "30 2 * * *",
            NEW_YORK,
            "2027-03-13T00:00:00Z",
            ["2027-03-13T07:30", "2027-03-14T07:00", "2027-03-15T06:30"],
        ),
        (
            "*/20 2 * * *",
            NEW_YORK,
            "2027-03-13T08:00:00Z",
            ["2027-03-14T07:00", "2027-03-15T06:00"],
        ),
        ("0 */2 * * *", NEW_YORK, "2027-03-14T05:00:00Z", ["2027-03-14T07:00", "2027-03-14T08:00"]),
        # One that comes twice counts once, the first time.
        (
            "30 1 * * *",
            NEW_YORK,
            "2027-11-06T00:00:00Z",
            ["2027-11-06T05:30", "2027-11-07T05:30", "2027-11-08T06:30"],
        ),
        ("30 1 * * *", NEW_YORK, "2027-11-07T05:45:00Z", ["2027-11-08T06:30"]),
        # Every hour or more often runs on through both.
        (
            "*/30 * * * *",
            NEW_YORK,
            "2027-11-07T05:00:00Z",
            ["2027-11-07T05:30", "2027-11-07T06:00", "2027-11-07T06:30"],
        ),
        (
            "0 0-23 * * *",
            NEW_YORK,
            "2027-11-07T04:00:00Z",
            ["2027-11-07T05:00", "2027-11-07T06:00", "2027-11-07T07:00"],
        ),
        # A change of half an hour, and one at midnight.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2027-10-01T00:00:00Z",
            ["2027-10-01T15:45", "2027-10-02T15:30", "2027-10-03T15:15"],
        ),
        # An hourly entry loses no minute beside such changes either.
        (
            "15,45 * * * *",
            "Australia/Lord_Howe",
            "2027-10-02T15:00:00Z",
            ["2027-10-02T15:15", "2027-10-02T15:45", "2027-10-02T16:15", "2027-10-02T16:45"],
        ),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2027-10-02T15:15:00Z",
            ["2027-10-02T15:45", "2027-10-02T16:45"],
        ),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2027-04-03T14:00:00Z",
            ["2027-04-03T14:45", "2027-04-03T15:15", "2027-04-03T16:15"],
        ),
        (
            "11 * * * *",
            "Asia/Pyongyang",
            "2018-05-04T14:00:00Z",
            ["2018-05-04T14:41", "2018-05-04T15:11"],
        ),
        # Its day has one more hour, which ends at midnight; then a whole day is skipped.
        (
            "0 * 30,31 12 *",
            "Pacific/Apia",
            "2011-12-30T08:00:00Z",
            ["2011-12-30T10:00", "2011-12-30T11:00"],
        ),
        (
            "0 6 30 12 *",
            "Pacific/Apia",
            "2011-12-30T00:00:00Z",
            ["2011-12-30T10:00", "2012-12-29T16:00"],
        ),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T04:00:00Z", ["2018-11-04T03:00"]),
        ("30 2 * * *", "UTC", "2027-03-13T03:00:00Z", ["2027-03-14T02:30"]),
    ],
)
def test_changes_of_the_clock(text: str, zone: str, after: str, expected: list[str]) -> None:
    assert fires(text, zone, after, len(expected)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        (NEW_YORK, "2027-03-14"),
        (NEW_YORK, "2027-11-07"),
        ("Australia/Lord_Howe", "2027-04-03"),
        ("Australia/Lord_Howe", "2027-10-02"),
        ("Pacific/Chatham", "2027-09-25"),
        ("Asia/Pyongyang", "2018-05-04"),
        ("Antarctica/Troll", "2027-03-28"),
        ("Africa/Cairo", "2027-04-30"),
    ],
)
def test_around_a_change_every_minute_is_looked_at(zone: str, change: str) -> None:
    """Decision 27, minute by minute: the slow way to the same fires."""
    chance = random.Random(change)
    start = datetime.fromisoformat(f"{change}T00:00Z") - timedelta(hours=6)
    clock = [start + timedelta(minutes=i) for i in range(36 * 60)]
    walls = [at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for at in clock]
    for _ in range(5):
        minutes, hours = entry(chance, 60), entry(chance, 24)
        wanted = list(slowly(clock, walls, minutes, hours))
        text = f"{spelled(minutes)} {spelled(hours)} * * *"
        schedule, at, found = Cron(text, zone), epoch_ms(clock[0]), []
        while (at := schedule.next_after(at)) <= epoch_ms(clock[-1]):
            found.append(at)
        assert found == wanted, (text, zone)


def slowly(
    clock: list[datetime], walls: list[datetime], minutes: set[int], hours: set[int]
) -> Iterator[int]:
    """A minute fires when a matching wall-clock time comes, or has been skipped, for the first time.

    With every hour in the entry it fires whenever the wall clock matches.
    """
    latest = walls[0]
    for at, wall in zip(clock[1:], walls[1:], strict=True):
        passed = [wall]
        if len(hours) < 24:
            steps = range(1, round((wall - latest) / timedelta(minutes=1)) + 1)
            passed = [latest + timedelta(minutes=i) for i in steps]
        if any(each.minute in minutes and each.hour in hours for each in passed):
            yield epoch_ms(at)
        latest = max(latest, wall)


def entry(chance: random.Random, count: int) -> set[int]:
    if chance.random() < 0.4:
        return set(range(count))
    return set(chance.sample(range(count), chance.randint(1, count // 4)))


def spelled(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))


def epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize("text", ["\n0 0\n* * *\n", "\ufeff0\u00a00\t*\r\n* *"])
def test_blanks_of_any_kind(text: str) -> None:
    assert fires(text, "UTC", "2026-01-01T00:00:00Z", 1) == ["2026-01-02T00:00"]


def test_a_range_of_one_value_is_no_open_step() -> None:
    assert fires("5-5/10 0 * * *", "UTC", "2026-01-01T00:00:00Z", 2) == [
        "2026-01-01T00:05",
        "2026-01-02T00:05",
    ]


def test_a_star_in_a_day_field_makes_both_fields_count() -> None:
    assert fires("0 0 */2 * 1", "UTC", "2026-06-01T00:00:00Z", 2) == [
        "2026-06-15T00:00",
        "2026-06-29T00:00",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 25 * * *", "cron hour: 25 is out of range"),
        ("0 0 * JAN *", "cron month: 'JAN' cannot be read"),
        ("0 0 L * *", "cron day of month: 'L' cannot be read"),
        ("0 0 * * 5#2", "cron weekday: '5#2' cannot be read"),
        ("@daily", "cron '@daily' has 1 field, not 5"),
        ("0 0 0 * * *", "cron '0 0 0 * * *' has 6 fields, not 5"),
        ("30-10 * * * *", "cron minute: the range 30-10 runs backwards"),
        ("*/0 * * * *", "cron minute: the step of */0 is 0"),
        ("99999 * * * *", "cron minute: '99999' cannot be read"),
        ("0 0 30 2 */2", "cron '0 0 30 2 */2' never fires"),
        ("0 0 29 2 */7", "cron '0 0 29 2 */7' never fires"),
    ],
)
def test_refused_with_the_field(text: str, message: str) -> None:
    with pytest.raises(BadCron) as raised:
        Cron(text)
    assert str(raised.value) == message
    assert raised.value.hint


@pytest.mark.parametrize("zone", ["", "Europe", "../x", "/etc/passwd", "\x00", "\ud800", "a" * 999])
def test_unknown_zones(zone: str) -> None:
    with pytest.raises(BadCron, match="there is no time zone"):
        Cron("* * * * *", zone)


def test_a_misspelt_zone_gets_a_suggestion() -> None:
    with pytest.raises(BadCron) as raised:
        Cron("* * * * *", "America/NewYork")
    assert raised.value.hint == "did you mean `America/New_York`?"
    assert repr(Cron("1 2 * * *")) == "Cron('1 2 * * *', 'UTC')"
