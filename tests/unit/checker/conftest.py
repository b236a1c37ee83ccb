"""A destination that does as it is told, and time that passes only when all wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from pipo.connectors.contract import (
    CheckError,
    Checks,
    Impossible,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.errors import InvalidState
from pipo.rpc.stubs.checker_pb2 import Verification

_T = TypeVar("_T")
Run = Callable[[Callable[["LoopClock"], Coroutine[Any, Any, _T]]], _T]


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            events = select(0 if timeout is None or timeout > 0 else timeout)
            if not events and timeout is not None and timeout > 0:
                self._now += timeout
            return events

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


class LoopClock:
    """The loop's own time as a Clock; no chance in it."""

    def now_ms(self) -> int:
        return 1_790_000_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def jitter(self, span_s: float) -> float:
        return 0.0


@dataclass
class FakeChecks:
    """One check, `there`: passes for units whose `id` stands in `present`.

    A unit named `never` can never pass. `before` runs before each look answers: it may
    wait, raise, or return the answers itself.
    """

    present: set[str] = field(default_factory=set)
    before: Callable[[str, Sequence[Target]], Coroutine[Any, Any, Any]] | None = None
    looks: list[tuple[float, str, list[str]]] = field(default_factory=list)
    looking: dict[str, int] = field(default_factory=dict)
    overlapped: bool = False
    closed: bool = False

    def place(self, target: Target) -> str:
        place = target.output.get("path", "")
        if place == "broken":
            raise KeyError(place)
        return str(place)

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        now = asyncio.get_running_loop().time()
        self.looks.append((now, place, [t.settings["id"] for t in targets]))
        self.overlapped |= self.looking.get(place, 0) > 0
        self.looking[place] = self.looking.get(place, 0) + 1
        try:
            answers = await self.before(place, targets) if self.before else None
        finally:
            self.looking[place] -= 1
        if answers is not None:
            return list(answers)
        return [
            Seen(t.settings["id"] in self.present, {"path": place, "id": t.settings["id"]})
            for t in targets
        ]

    def judge(self, target: Target, seen: Seen) -> Judgement:
        match target.settings["id"]:
            case "never":
                return Impossible("it was dead-lettered", seen.evidence)
            case "bug":
                raise ZeroDivisionError("judged")
        if seen.value:
            return Passed(seen.evidence)
        return Pending(f"no {target.settings['id']} there", seen.evidence)

    async def close(self) -> None:
        self.closed = True

    @property
    def times(self) -> list[float]:
        """When the looks began, from the first one on."""
        return [round(at - self.looks[0][0], 6) for at, _, _ in self.looks]


@dataclass
class FakeConnectors:
    """One output, `fake`, with one check, `there`."""

    checks: FakeChecks = field(default_factory=FakeChecks)

    def offered(self, output: str) -> frozenset[str]:
        return frozenset({"there", "status"})

    def build_checks(self, output: str) -> Checks:
        if output != "fake":
            raise InvalidState(f"the checks of output {output!r} are not built yet")
        return self.checks


def make_offer(id: str, **changes: Any) -> Verification:
    """An offer of unit `id` at path `a`, with a `within` of 10 s unless it says otherwise."""
    words = {
        "id": f"{id}:1:1",
        "check": changes.pop("check", "there"),
        "with": json.dumps({"id": id}).encode(),
        "result": b'{"rowid": 1}',
        "output": changes.pop("output", "fake"),
        "target": json.dumps({"path": changes.pop("path", "a")}).encode(),
        "within_ms": changes.pop("within_ms", 10_000),
    }
    return Verification(**{"within_left_ms": words["within_ms"], **words, **changes})


@pytest.fixture
def offer() -> Callable[..., Verification]:
    return make_offer


@pytest.fixture
def connectors() -> FakeConnectors:
    return FakeConnectors()


@pytest.fixture
def checks(connectors: FakeConnectors) -> FakeChecks:
    return connectors.checks


@pytest.fixture
def patiently() -> Run[Any]:
    """Runs `scene(clock)` on a PatientLoop."""

    def run(scene: Callable[[LoopClock], Coroutine[Any, Any, _T]]) -> _T:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            return runner.run(scene(LoopClock()))

    return run
