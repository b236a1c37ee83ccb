"""What a machine tells of itself, one metric at a time; null for what it does not have.

Only this module knows psutil. All sizes are bytes, all percentages 0 to 100 with one
decimal. In a container the processor, the memory and the network are what the kernel
shows there, which for the first two is the whole host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

_LOOPBACK: Final = ("lo", "lo0")


class CpuTime(NamedTuple):
    """Seconds of all processors since the machine started."""

    busy: float
    total: float


class Machine:
    """Reads this machine; `folder` is where its disk is looked at.

    One object for each input: the processor's share is what was busy since its last sample.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cpu_before: CpuTime | None = None
        self._read: Mapping[str, Callable[[], Any]] = {
            "cpu": self._cpu,
            "memory": _memory,
            "disk": self._disk,
            "battery": _battery,
            "network": _network,
        }

    def begin(self) -> None:
        """Where the first sample's share of the processor counts from."""
        with suppress(Exception):
            self._cpu_before = cpu_time()

    def read(self, metric: str) -> Any:
        """A metric's values, or None where the machine has none.

        Raises: whatever psutil and the system have for one that cannot be read.
        """
        return self._read[metric]()

    def _cpu(self) -> dict[str, Any]:
        now, before = cpu_time(), self._cpu_before
        self._cpu_before = now
        load = None
        with suppress(OSError, AttributeError):
            load = round(os.getloadavg()[0], 2)
        percent = (
            None if before is None else share(now.busy - before.busy, now.total - before.total)
        )
        return {"percent": percent, "cores": psutil.cpu_count(), "load": load}

    def _disk(self) -> dict[str, Any]:
        found = psutil.disk_usage(str(self._folder))
        return {
            "path": str(self._folder),
            "total": found.total,
            "free": found.free,
            "used": found.used,
            # Of what the user may fill: the system keeps a reserve that is neither used nor free.
            "percent": share(found.used, found.used + found.free),
        }


def cpu_time() -> CpuTime:
    found = psutil.cpu_times()
    # A guest's time is counted in user and nice as well.
    total = sum(found) - getattr(found, "guest", 0.0) - getattr(found, "guest_nice", 0.0)
    return CpuTime(total - found.idle - getattr(found, "iowait", 0.0), total)


def share(part: float, whole: float) -> float | None:
    """A percentage; None of nothing. Counters that stepped back count as standing."""
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 1) if whole > 0 else None


def _memory() -> dict[str, Any]:
    found = psutil.virtual_memory()
    # Free is what programs can still have, caches included.
    used = found.total - found.available
    return {
        "total": found.total,
        "free": found.available,
        "used": used,
        "percent": share(used, found.total),
    }


def _battery() -> dict[str, Any] | None:
    found = psutil.sensors_battery()
    if found is None:
        return None
    percent = round(min(100.0, max(0.0, found.percent)), 1)
    if found.power_plugged is None:
        status = "unknown"
    elif not found.power_plugged:
        status = "discharging"
    else:
        status = "full" if percent >= 100 else "charging"
    return {"percent": percent, "status": status}


def _network() -> dict[str, Any] | None:
    """Of all interfaces but the loopback, since the machine started."""
    found = psutil.net_io_counters(pernic=True)
    outside = [counts for name, counts in found.items() if name not in _LOOPBACK]
    if not outside:
        return None
    return {
        "rx_bytes": sum(counts.bytes_recv for counts in outside),
        "tx_bytes": sum(counts.bytes_sent for counts in outside),
    }
