"""Samples by the clock, of a machine that the test holds (edges 41 to 45, 49, 51 and 52)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pipo.clock import iso
from pipo.connectors import registry
from pipo.connectors.contract import InputSpec
from pipo.connectors.system.input import SystemInputs
from pipo.errors import BadRequest
from tests.contract.connectors.intake import FakeIntake, input_context
from tests.contract.connectors.test_schedule_input import JumpingClock

START = int(JumpingClock().ms)


class FakeMachine:
    """A machine whose metrics are numbered; those in `broken` cannot be read."""

    def __init__(self) -> None:
        self.began = 0
        self.count = 0
        self.broken: set[str] = set()
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self.on_read: Callable[[], None] = lambda: None

    def begin(self) -> None:
        self.began += 1

    def read(self, metric: str) -> Any:
        self.asked.set()
        self.answers.wait(30)
        self.on_read()
        self.count += 1
        if metric in self.broken:
            raise ValueError(f"no {metric} here")
        return None if metric == "battery" else {"number": self.count}


class Run:
    """A system input whose waits are over at once, until it has waited `waits` times."""

    def __init__(self, intake: FakeIntake, *, waits: int, timeout_s: float = 30, **more: Any):
        self.clock = JumpingClock()
        self.machine = FakeMachine()
        self.slept: list[float] = []
        self.logged: list[tuple[str, Any]] = []
        self.waits = waits
        self.idle = asyncio.Event()
        self.inputs = SystemInputs(
            [InputSpec("m", {"every": "20s", **more}, "json")],
            input_context(intake, clock=self.clock, log=self._log),
            machine=lambda: self.machine,
            pause=self._pause,
            timeout_s=timeout_s,
        )

    def _log(self, level: str, message: str, **keys: Any) -> None:
        self.logged.append((keys["action"], keys.get("metric") or keys.get("missed")))

    async def _pause(self, stop: asyncio.Event, seconds: float) -> bool:
        self.waits -= 1
        if self.waits < 0:
            self.idle.set()
            return await stop.wait()
        self.slept.append(seconds)
        self.clock.ms += seconds * 1000
        return stop.is_set()

    async def until_idle(self) -> None:
        await self.inputs.open()
        await asyncio.wait_for(self.idle.wait(), 30)
        await self.inputs.close()


async def test_a_sample_holds_what_was_asked_for_and_when() -> None:
    intake = FakeIntake()
    run = Run(intake, waits=2, metrics=["disk", "battery"])
    await run.until_idle()
    assert run.machine.began == 1
    # The first one comes a full period after the start, and none in between.
    assert run.slept == [20, 20]
    times = [iso(START + 20_000), iso(START + 40_000)]
    assert intake.data == [
        {"disk": {"number": 1}, "battery": None, "sampled_at": times[0]},
        {"disk": {"number": 3}, "battery": None, "sampled_at": times[1]},
    ]
    assert [arrival.source for arrival in intake.arrivals] == times
    assert {(a.trigger, a.input) for a in intake.arrivals} == {("system", "m")}
    assert run.logged == []


async def test_without_a_choice_a_sample_holds_everything() -> None:
    intake = FakeIntake()
    await Run(intake, waits=1).until_idle()
    names = ["cpu", "memory", "disk", "battery", "network", "sampled_at"]
    assert [list(sample) for sample in intake.data] == [names]


async def test_what_cannot_be_read_is_null_and_told_once() -> None:
    intake = FakeIntake()
    run = Run(intake, waits=3, metrics=["cpu", "disk"])
    run.machine.broken = {"disk"}
    await run.until_idle()
    assert [sample["disk"] for sample in intake.data] == [None] * 3
    assert [sample["cpu"]["number"] for sample in intake.data] == [1, 3, 5]
    assert run.logged == [("metric_missing", "disk")]


async def test_a_sample_that_is_not_taken_is_dropped() -> None:
    words = iter(["refuse", "reject", "accept"])
    intake = FakeIntake(lambda arrival: next(words))
    run = Run(intake, waits=3)
    await run.until_idle()
    assert run.logged == [("tick_skipped", None), ("tick_rejected", None)]


async def test_samples_that_a_slow_machine_misses_are_counted() -> None:
    """A time is that of the sample: it is taken once the machine has answered."""
    intake = FakeIntake()
    run = Run(intake, waits=1, metrics=["cpu"])
    run.machine.on_read = lambda: setattr(run.clock, "ms", run.clock.ms + 65_000)
    await run.until_idle()
    assert [arrival.source for arrival in intake.arrivals] == [iso(START + 85_000)]
    assert run.logged == [("ticks_missed", 3)]


async def test_a_machine_that_hangs_loses_samples_and_holds_up_nobody() -> None:
    intake = FakeIntake()
    run = Run(intake, waits=2, timeout_s=0.01, metrics=["disk"])
    run.machine.answers.clear()
    await run.inputs.open()
    await asyncio.wait_for(run.idle.wait(), 30)
    assert run.logged == [("sample_lost", None)] * 2
    # Asked once: a second thread would hang beside the first.
    readers = [one for one in threading.enumerate() if one.name == "sample of m"]
    assert len(readers) == 1
    await run.inputs.close()
    run.machine.answers.set()
    readers[0].join(30)
    assert intake.arrivals == []


async def test_what_comes_too_late_is_no_sample_of_the_next_tick() -> None:
    intake = FakeIntake()
    run = Run(intake, waits=1, timeout_s=0.01, metrics=["disk"])
    run.machine.answers.clear()
    await run.inputs.open()
    await asyncio.wait_for(run.idle.wait(), 30)
    (reader,) = [one for one in threading.enumerate() if one.name == "sample of m"]
    run.machine.answers.set()
    await asyncio.to_thread(reader.join, 30)
    (ticker,) = run.inputs._tickers
    ticker._timeout_s = 30  # type: ignore[attr-defined]
    await ticker.tick(START + 40_000)
    assert intake.data[0]["disk"] == {"number": 2}
    await run.inputs.close()


async def test_a_close_waits_for_the_sample_in_hand() -> None:
    intake = FakeIntake()
    run = Run(intake, waits=1)
    run.machine.answers.clear()
    await run.inputs.open()
    await asyncio.to_thread(run.machine.asked.wait, 30)
    closing = asyncio.ensure_future(run.inputs.close())
    await asyncio.sleep(0)
    assert not closing.done()
    run.machine.answers.set()
    await asyncio.wait_for(closing, 30)
    assert len(intake.arrivals) == 1


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(BadRequest, match="`every: 0s` is too short"):
        registry.build_inputs(
            "system", [InputSpec("m", {"every": "0s"}, "json")], input_context(FakeIntake())
        )


def test_psutil_is_loaded_by_pipelines_that_sample_and_no_others() -> None:
    look = (
        "import sys; from pipo.connectors import registry; registry.manifests(); "
        "import pipo.connectors.schedule.input; "
        "print('psutil' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
