"""What psutil says, as a sample holds it; and what a machine may not have."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace as Seen
from typing import Any

import psutil
import pytest

from pipo.connectors.system.readings import Machine, share

Times = namedtuple("Times", "user nice system idle iowait guest guest_nice")
HERE = Path("/somewhere")


def says(monkeypatch: pytest.MonkeyPatch, name: str, *answers: Any) -> None:
    """A function of psutil that answers so, in turn; the last one again and again."""
    left = list(answers)

    def answer(*words: Any, **keys: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(psutil, name, answer, raising=False)


def test_the_processor_is_judged_since_the_last_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    says(
        monkeypatch,
        "cpu_times",
        Times(10, 0, 0, 90, 0, 0, 0),
        # A guest's 4 s are in `user` already; 60 of 80 s were spent idle or waiting for a disk.
        Times(29, 1, 0, 140, 10, 4, 0),
        Times(29, 1, 0, 140, 10, 4, 0),
    )
    says(monkeypatch, "cpu_count", 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 5, 6))
    machine = Machine(HERE)
    machine.begin()
    assert machine.read("cpu") == {"percent": 25.0, "cores": 8, "load": 1.23}
    # No time has passed: there is nothing to say.
    assert machine.read("cpu")["percent"] is None


def test_a_processor_that_was_not_seen_before_has_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says(monkeypatch, "cpu_times", OSError("no /proc"), Times(10, 0, 0, 90, 0, 0, 0))
    says(monkeypatch, "cpu_count", None)
    monkeypatch.setattr(os, "getloadavg", lambda: exec("raise OSError('unobtainable')"))
    machine = Machine(HERE)
    machine.begin()
    assert machine.read("cpu") == {"percent": None, "cores": None, "load": None}


@pytest.mark.parametrize(
    ("part", "whole", "percent"),
    [(1, 3, 33.3), (0, 5, 0.0), (5, 5, 100.0), (-1, 5, 0.0), (9, 5, 100.0), (0, 0, None)],
)
def test_shares(part: float, whole: float, percent: float | None) -> None:
    assert share(part, whole) == percent


def test_memory_counts_what_programs_can_still_have(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "virtual_memory", Seen(total=1000, available=250, free=10, used=600))
    found = Machine(HERE).read("memory")
    assert found == {"total": 1000, "free": 250, "used": 750, "percent": 75.0}


def test_the_disk_is_that_of_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def usage(path: str) -> Any:
        asked.append(path)
        return Seen(total=1000, used=300, free=600, percent=30.0)

    monkeypatch.setattr(psutil, "disk_usage", usage)
    found = Machine(HERE).read("disk")
    assert found == {
        "path": "/somewhere",
        "total": 1000,
        "free": 600,
        "used": 300,
        # The system keeps 100 for itself.
        "percent": 33.3,
    }
    assert asked == ["/somewhere"]


@pytest.mark.parametrize(
    ("percent", "plugged", "expected"),
    [
        (55.04, False, {"percent": 55.0, "status": "discharging"}),
        (55, True, {"percent": 55, "status": "charging"}),
        (100, True, {"percent": 100, "status": "full"}),
        (104, False, {"percent": 100, "status": "discharging"}),
        (7, None, {"percent": 7, "status": "unknown"}),
    ],
)
def test_a_battery(
    monkeypatch: pytest.MonkeyPatch, percent: float, plugged: bool | None, expected: Any
) -> None:
    says(monkeypatch, "sensors_battery", Seen(percent=percent, power_plugged=plugged, secsleft=1))
    assert Machine(HERE).read("battery") == expected


def test_a_machine_without_a_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, "sensors_battery", None)
    assert Machine(HERE).read("battery") is None


def test_the_network_is_all_of_it_but_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def card(received: int, sent: int) -> Any:
        return Seen(bytes_recv=received, bytes_sent=sent)

    cards = {"lo": card(1, 1), "eth0": card(10, 20), "wlan0": card(100, 200)}
    says(monkeypatch, "net_io_counters", cards, {"lo": card(1, 1)}, {})
    machine = Machine(HERE)
    assert machine.read("network") == {"rx_bytes": 110, "tx_bytes": 220}
    assert machine.read("network") is None
    assert machine.read("network") is None
