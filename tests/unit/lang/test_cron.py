from __future__ import annotations

from datetime import datetime

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
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T04:00:00Z", ["2018-11-04T03:00"]),
        ("30 2 * * *", "UTC", "2027-03-13T03:00:00Z", ["2027-03-14T02:30"]),
    ],
)
def test_changes_of_the_clock(text: str, zone: str, after: str, expected: list[str]) -> None:
    assert fires(text, zone, after, len(expected)) == expected


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
        ("@daily", "cron '@daily' has 1 fields, not 5"),
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
