"""The machine's clock, and the wall clock that a test may set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipo import clock
from pipo.clock import SystemClock, iso


def test_the_clock_is_the_machines_unless_a_test_says_otherwise() -> None:
    assert clock._wall_clock() is clock._machine_ms
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 60_000


def test_a_test_may_set_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = tmp_path / "shift"
    monkeypatch.setenv("PIPO_CLOCK_SHIFT", str(shift))
    wall_ms = clock._wall_clock()
    for by_ms in (0, 3_600_000, -3_600_000):
        shift.write_text(str(by_ms))
        assert abs(wall_ms() - clock._machine_ms() - by_ms) < 60_000


def test_a_moment_is_written_in_utc() -> None:
    assert iso(1_791_666_828_263) == "2026-10-10T21:13:48.263Z"
