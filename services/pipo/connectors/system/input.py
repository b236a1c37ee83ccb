"""Makes packets of samples of the machine, every so often.

Each input reads on a thread of its own, since a disk that hangs holds up whoever asks
about it. A sample that takes too long is lost, and so are those that fall due until
the machine answers; then the next one is taken as ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from pipo.clock import iso
from pipo.connectors.contract import Arrival, Input, InputContext, InputSpec
from pipo.connectors.schedule.ticking import Pause, Ticks, Untaken, offer, stopped_within
from pipo.connectors.schedule.timetable import Every, Timetable, period_ms_of
from pipo.connectors.system.manifest import METRICS
from pipo.connectors.system.readings import Machine

READING_TIMEOUT_S: Final = 5.0


class Readings(Protocol):
    """A machine that is read (readings.Machine)."""

    def begin(self) -> None: ...

    def read(self, metric: str) -> Any: ...


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return SystemInputs(specs, context)


class SystemInputs(Ticks):
    """All system inputs of a pipeline."""

    def __init__(
        self,
        specs: Sequence[InputSpec],
        context: InputContext,
        *,
        machine: Callable[[], Readings] | None = None,
        pause: Pause = stopped_within,
        timeout_s: float = READING_TIMEOUT_S,
    ) -> None:
        make = machine or (lambda: Machine(context.folder))
        samplers = [_Sampler(spec, context, make(), timeout_s) for spec in specs]
        super().__init__(samplers, context, pause=pause)


class _Taken(NamedTuple):
    """A sample, and why what is missing in it could not be read, by metric."""

    data: dict[str, Any]
    missing: dict[str, str]


class _Sampler:
    """One system input."""

    def __init__(
        self, spec: InputSpec, context: InputContext, machine: Readings, timeout_s: float
    ) -> None:
        self.name = spec.name
        self._period_ms = period_ms_of(spec)
        self._metrics: list[str] = list(spec.settings.get("metrics", METRICS))
        self._context = context
        self._machine = machine
        self._timeout_s = timeout_s
        self._reading: asyncio.Future[_Taken] | None = None
        # What could not be read the last time: told once, until it can.
        self._missing: Collection[str] = ()

    def timetable(self) -> Timetable:
        self._machine.begin()
        return Every(self._period_ms, self._context.clock)

    async def tick(self, due_ms: int) -> Untaken | None:
        """One sample, by the time it was taken (edge 52)."""
        # One that came too late is of the past.
        if self._reading is None or self._reading.done():
            self._reading = _on_thread(self._sample, f"sample of {self.name}")
        try:
            async with asyncio.timeout(self._timeout_s):
                sample, missing = await asyncio.shield(self._reading)
        except TimeoutError:
            self._log("sample lost: the machine does not answer", "sample_lost", due=iso(due_ms))
            return None
        for metric, reason in missing.items():
            if metric not in self._missing:
                told = "a metric cannot be read; it is null"
                self._log(told, "metric_missing", metric=metric, reason=reason)
        self._missing = missing.keys()
        arrival = Arrival(self.name, sample, "system", sample["sampled_at"])
        return await offer(self._context, arrival, iso(due_ms))

    def _log(self, message: str, action: str, **keys: str) -> None:
        self._context.log("warn", message, action=action, input=self.name, **keys)

    def _sample(self) -> _Taken:
        """What the machine says now; runs on the reading thread."""
        sample: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for metric in self._metrics:
            sample[metric] = None
            try:
                sample[metric] = self._machine.read(metric)
            except Exception as error:
                # Whatever a machine has instead of an answer: the sample does without.
                missing[metric] = str(error) or type(error).__name__
        sample["sampled_at"] = iso(self._context.clock.now_ms())
        return _Taken(sample, missing)


def _on_thread(job: Callable[[], _Taken], name: str) -> asyncio.Future[_Taken]:
    """What a job returns, from a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Taken] = loop.create_future()

    def run() -> None:
        taken = job()
        # The loop may have ended meanwhile: nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(future.set_result, taken)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
