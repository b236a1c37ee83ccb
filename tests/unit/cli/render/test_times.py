"""Durations, uptimes and ages as edge 395 and 397 print them."""

import pytest

from pipo_cli.render import times


@pytest.mark.parametrize(
    ("ms", "places", "text"),
    [
        (0.4, 2, "0ms"),
        (12, 2, "12ms"),
        (999.4, 2, "999ms"),
        (999.6, 2, "1.00s"),
        (1500, 2, "1.50s"),
        (1500, 1, "1.5s"),
        (59_940, 1, "59.9s"),
        (59_960, 1, "1m00s"),
        (61_000, 2, "1m01s"),
        (3_720_000, 2, "1h02m"),
        (187_200_000, 1, "2d04h"),
    ],
)
def test_duration(ms: float, places: int, text: str) -> None:
    assert times.duration(ms, places=places) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (9, "9s"), (724, "12m04s"), (7800, "2h10m"), (273_600, "3d04h")],
)
def test_uptime(seconds: int, text: str) -> None:
    assert times.uptime(seconds) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s ago"),
        (5_400, "5s ago"),
        (360_000, "6m ago"),
        (7_200_000, "2h ago"),
        (259_200_000, "3d ago"),
    ],
)
def test_age(ms: int, text: str) -> None:
    assert times.age(ms) == text


def test_times_are_utc() -> None:
    at = 1_791_666_828_263
    assert times.stamp(at) == "2026-10-10T21:13:48.263Z"
    assert times.time_of_day(at) == "21:13:48.263"
