"""One pipeline's parts around a journal, an output and time that do as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pipo.clock import Clock
from pipo.connectors import registry
from pipo.connectors.contract import (
    Arrival,
    Context,
    Flush,
    Refused,
    RefusedArrival,
    RetryAfter,
    Step,
    StepCall,
    WriteFailed,
    WriteUnit,
)
from pipo.errors import PipoError
from pipo.journal.changes import Change
from pipo.journal.recover import PendingUnit, Recovery
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.journal.versions import Version
from pipo.lang.check import Source, parse
from pipo.lang.model import Pipeline
from pipo.lang.texts import Texts
from pipo.payload import encode
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.assembly import Surroundings, assemble
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.definition.versions import Edition, Plans
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import UNLOADED, Unit
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.life.lifetime import terms_of
from pipo_runner.pipeline.operations import operations

T = TypeVar("T")
AT = 1_790_000_000_000
FOLDER = Path("/pipelines")
TABLE = "to: sqlite, with: { path: ./people.db, table: people, create: true }"
# The smallest pipeline: a push goes straight to the output and is settled by its write.
PLAIN = f"input: {{ via: push }}\noutput: {{ from: input, {TABLE} }}\n"
NOTHING = Recovery(units=[], next_queue_seq=1, marks={}, version=None)


def pipeline_of(body: str, folder: Path = FOLDER) -> Pipeline:
    """The checked model of a pipeline `people`."""
    text = f"pipo: 1\nname: people\n{body}"
    return parse(Source(text, str(folder / "people.pipo")), registry.manifests())


def edition_of(
    pipeline: Pipeline, version: int = 1, *, source: str = "", folder: Path = FOLDER
) -> Edition:
    """A version of a pipeline, as its process runs it."""
    return Edition(version, pipeline, Texts(source), folder)


def stored_version(version: int, source: str, **given: Any) -> Version:
    """A version as the journal gives it back."""
    made: dict[str, Any] = {
        "version": version,
        "source": source,
        "compiled": b"{}",
        "files": {},
        "hash": Texts(source, given.get("files", {})).hash,
        "author": "human",
        "author_kind": "human",
        "reason": "first start",
        "proposal": None,
        "created_at": AT,
        "folder": str(FOLDER),
    }
    return Version(**made | given)


def stored(source: str) -> Callable[[int], Awaitable[Version | None]]:
    """Every version has this text."""

    async def version_of(version: int) -> Version:
        return stored_version(version, source)

    return version_of


async def quiet(turns: int = 30) -> None:
    """Lets everything run that can run without anything from outside."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], T], turns: int = 1000) -> T:
    """The first true value of a condition that only the loop's own turns can bring about."""
    for _ in range(turns):
        if value := condition():
            return value
        await asyncio.sleep(0)
    raise AssertionError(f"not within {turns} turns of the loop")


class FakeClock:
    """Time that passes when the test says so; `set_ms` sets the wall clock, and no time passes."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.set_ms = 0

    def now_ms(self) -> int:
        return AT + self.set_ms + round(self.passed_s * 1000)

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s

    def jitter(self, span_s: float) -> float:
        return 0.0


class ManualTimers(Timers):
    """Waits end when `elapse` has come to them; tasks are real."""

    def __init__(self, clock: FakeClock) -> None:
        self.crashes: list[BaseException] = []
        super().__init__(self.crashes.append)
        self._clock = clock
        self._due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self._due.append((self._clock.passed_s + delay_s, call, args))

    @property
    def waits_s(self) -> list[float]:
        """How long each wait still is, the shortest first."""
        return sorted(round(due - self._clock.passed_s, 6) for due, _, _ in self._due)

    async def elapse(self, seconds: float) -> None:
        """Time goes on, and each wait that ends meanwhile ends at its own moment."""
        end = self._clock.passed_s + seconds
        while due := [one for one in self._due if one[0] <= end + 1e-9]:
            first = min(due, key=lambda one: one[0])
            self._due.remove(first)
            self._clock.passed_s = max(self._clock.passed_s, first[0])
            first[1](*first[2])
            await quiet()
        self._clock.passed_s = end
        await quiet()


@dataclass
class Handed:
    """What one caller handed over; `told` says that somebody waits for it."""

    changes: tuple[Change, ...]
    done: Callable[[BaseException | None], None] | None = None


@dataclass
class FakeJournal:
    """Keeps what it is handed until the test lets it land; `auto` lands at once.

    `refuses` is raised to whoever hands over, as a full or a failed journal does.
    """

    auto: bool = False
    refuses: BaseException | None = None
    durable: list[Change] = field(default_factory=list)
    waiting: list[Handed] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    last_seq: int = 0
    commit_observer: Callable[[int, float], None] | None = None
    outcome: Callable[[Change], Any] = lambda change: None
    """What `commit` answers for each of its changes."""
    raised: list[Exception] = field(default_factory=list)
    """What listeners raised; the process stops at the first (see `PipelineProcess`)."""

    def stage(self, *changes: Change, done: Callable[..., None] | None = None) -> None:
        self._hand(Handed(changes, done))

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None:
        self._hand(Handed(changes, done))

    async def commit(self, *changes: Change) -> list[Any]:
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if landed.done():
                return
            if error is None:
                landed.set_result(None)
            else:
                landed.set_exception(error)

        self._hand(Handed(changes, done))
        await landed
        return [self.outcome(change) for change in changes]

    def _hand(self, handed: Handed) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.waiting.append(handed)
        if self.auto:
            asyncio.get_running_loop().call_soon(self._land_now)

    def _land_now(self) -> None:
        landed, self.waiting = self.waiting, []
        for handed in landed:
            self.durable += handed.changes
        for handed in landed:
            self._tell(handed, None)

    def _tell(self, handed: Handed, error: BaseException | None) -> None:
        try:
            if handed.done is not None:
                handed.done(error)
        except Exception as raised:
            self.raised.append(raised)

    async def land(self) -> None:
        """Everything handed over so far is on disk, and whoever waits for it hears so."""
        self._land_now()
        await quiet()

    async def fail(self, error: BaseException) -> None:
        """Nothing of what waits, and nothing more, gets to the disk."""
        self.refuses = error
        lost, self.waiting = self.waiting, []
        for handed in lost:
            self._tell(handed, error)
        await quiet()

    @property
    def handed(self) -> list[Change]:
        """Every change in its order, durable or not."""
        return self.durable + [change for one in self.waiting for change in one.changes]

    def names(self, unit: str | None = None) -> list[str]:
        """The names of the changes, of one unit or of all, in order."""
        return [
            type(change).__name__
            for change in self.handed
            if unit is None or getattr(change, "unit", unit) == unit
        ]

    def of(self, kind: type[T]) -> list[T]:
        return [change for change in self.handed if isinstance(change, kind)]

    @property
    def rows(self) -> FakeJournal:
        return self

    async def rows_of(self) -> None:
        raise AssertionError("no test reads rows through this journal")


Result = Mapping[str, Any] | WriteFailed | RetryAfter | Refused


@dataclass
class FakeOutput:
    """Writes as the test says: `answer` per unit, `whole` for a call, `hold` until `let_go`."""

    answer: Callable[[WriteUnit], Result] = lambda unit: {"rowid": 1}
    whole: Exception | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    refuses: Callable[[Any], Exception | None] = lambda data: None
    writes: list[list[WriteUnit]] = field(default_factory=list)
    atomic: list[bool] = field(default_factory=list)
    """Whether each write was one of a batch."""
    overlapped: bool = False
    opened: list[Mapping[str, int]] = field(default_factory=list)
    recovered: list[Mapping[str, Any]] = field(default_factory=list)
    _held: asyncio.Event | None = None
    _writing: set[str] = field(default_factory=set)

    def hold(self) -> None:
        """From now on a write does not return."""
        self._held = asyncio.Event()

    def let_go(self) -> None:
        assert self._held is not None
        self._held.set()
        self._held = None

    async def open(self, marks: Mapping[str, int]) -> None:
        self.opened.append(marks)

    def place(self, settings: Mapping[str, Any], key: str = "") -> str:
        return str(settings["path"])

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        key = settings.get("columns", {}).get(settings.get("key", "packet_id"))
        return None if key is None else str(key)

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        error = self.refuses(data)
        if error is not None:
            raise error

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        place = self.place(units[0].settings)
        assert {self.place(unit.settings) for unit in units} == {place}
        self.overlapped |= place in self._writing
        self._writing.add(place)
        self.writes.append(list(units))
        self.atomic.append(atomic)
        try:
            if self._held is not None:
                await self._held.wait()
            if self.whole is not None:
                raise self.whole
            results = [self.answer(unit) for unit in units]
            if atomic:
                _raise_first(results)
            return Flush(results, self.marks)
        finally:
            self._writing.discard(place)

    async def recover(self, settings: Mapping[str, Any]) -> None:
        self.recovered.append(settings)

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def written(self) -> list[str]:
        """The units of all writes, in order."""
        return [unit.id for group in self.writes for unit in group]


def _raise_first(results: Sequence[Result]) -> None:
    """A batch fails as a whole, with what its first bad unit says (see `Output.write`)."""
    for result in results:
        if isinstance(result, Refused):
            raise WriteFailed(result.message, hint=result.hint)
        if isinstance(result, Exception):
            raise result


class FakeStep:
    """A map that fails where `steps` of the rig says so."""

    pure: Literal[True] = True

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig = rig
        self._name = name

    def run(self, call: StepCall) -> Any:
        self._rig.ran.append((call.unit, call.node))
        if self._rig.step is not None:
            self._rig.step(call)
        return call.settings.get("data")


class FakeOutsideStep:
    """A step that reaches outside; it returns once `let_go` is called, if the rig holds it."""

    pure: Literal[False] = False

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig = rig
        self._name = name
        self._held: asyncio.Event | None = None

    def hold(self) -> None:
        """From now on a run does not return."""
        self._held = asyncio.Event()

    def let_go(self) -> None:
        assert self._held is not None
        self._held.set()
        self._held = None

    async def open(self) -> None:
        """Nothing is opened."""

    async def run(self, call: StepCall) -> Any:
        self._rig.ran.append((call.unit, call.node))
        if self._held is not None:
            await self._held.wait()
        if self._rig.step is not None:
            self._rig.step(call)
        return call.settings.get("body")

    async def close(self) -> None:
        """Nothing is open."""


class Rig:
    """The parts of one pipeline, assembled as the process does it. `body` is its file's rest.

    With a real `journal` nothing is handed to the fake one.
    """

    def __init__(
        self,
        body: str = PLAIN,
        *,
        auto: bool = False,
        opened: bool = True,
        recovery: Recovery = NOTHING,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        packet_limit: int = 1024,
        stored: Mapping[str, Any] | None = None,
        journal: SqliteJournal | None = None,
        outside: Collection[str] = (),
    ) -> None:
        self.pipeline = pipeline_of(body)
        self.clock = FakeClock()
        self.timers = ManualTimers(self.clock)
        self.journal = FakeJournal(auto=auto)
        self.output = FakeOutput()
        self.outputs: dict[str, FakeOutput] = {}
        """The outputs of other versions' connectors, by name."""
        self.step: Callable[[StepCall], None] | None = None
        self.ran: list[tuple[str, str]] = []
        self.logged: list[tuple[str, str]] = []
        self.stored = dict(stored or {})
        self.loaded: list[str] = []
        self.load: Callable[[Unit], Awaitable[None]] = self._load_stored
        self.outside = {name: FakeOutsideStep(self, name) for name in outside}
        """The steps of these connectors, which reach outside."""
        self.budget = BodyBudget(8 * packet_limit)
        self.plans = Plans(registry.manifests(), FOLDER, self._build_step)
        self.plans.put_in_force(edition_of(self.pipeline))
        self.around = Surroundings(
            journal=journal or cast(SqliteJournal, self.journal),
            scopes=Scopes("people", env=env or {}, secrets=secrets or {}),
            plans=self.plans,
            output_of=lambda plan: self.outputs.get(plan.pipeline.output.to, self.output),
            timers=self.timers,
            clock=cast(Clock, self.clock),
            context=Context(
                pipeline="people",
                folder=FOLDER,
                clock=self.clock,
                log=self._log,
                packet_limit=packet_limit,
            ),
            redact=Redactor((secrets or {}).values()).text,
            load=self._load,
            budget=self.budget,
            terms=terms_of(self.pipeline.lifetime, None),
        )
        self.parts = assemble(self.pipeline, self.around, recovery)
        self.refuses: PipoError | None = None
        """Why the pipeline's state allows no replay and no purge."""
        self.sources: dict[int, str] = {}
        """Texts of older versions, for what asks for them."""
        self.operations = operations(
            "people", self.around, self.parts, prepare=self._prepare, may=self._may
        )
        if opened:
            self.parts.admission.open()
            self.parts.executor.open()

    def _may(self, what: str, *, draining: bool = False) -> None:
        if self.refuses is not None:
            raise self.refuses

    async def _prepare(self, versions: set[int]) -> None:
        async def version_of(version: int) -> Version | None:
            source = self.sources.get(version)
            return None if source is None else stored_version(version, source)

        await self.plans.add_older(versions, version_of)

    def _build_step(self, role: str, name: str, edition: Edition) -> Step:
        return self.outside.get(name) or FakeStep(self, name)

    def _log(self, level: str, message: str, **keys: Any) -> None:
        self.logged.append((level, message))

    async def _load(self, unit: Unit) -> None:
        await self.load(unit)

    async def _load_stored(self, unit: Unit) -> None:
        if unit.data is UNLOADED:
            self.loaded.append(unit.id)
            unit.data = self.stored[unit.id]

    def arrival(self, data: Any, input_name: str = "input", **given: Any) -> Arrival:
        return Arrival(input_name, data, given.pop("trigger", "push"), "test", **given)

    async def accept(self, *data: Any) -> list[str]:
        """Packets that are on disk; their ids. They are on their way when it returns."""
        take = asyncio.create_task(self.parts.intake.take([self.arrival(one) for one in data]))
        await until(lambda: take.done() or self.journal.waiting)
        # Only the acceptance lands; what it leads to waits for the test.
        await self.journal.land()
        taken = await take
        await quiet()
        ids = [one.packet_id for one in taken if not isinstance(one, RefusedArrival)]
        self.stored.update(zip(ids, data, strict=True))
        return ids

    async def settle(self) -> None:
        """Lets the journal land until nobody waits for it any more."""
        await quiet()
        while self.journal.waiting:
            await self.journal.land()


def pending(number: int, **given: Any) -> PendingUnit:
    """A pending unit as a journal hands it over, ready for the output unless it says otherwise."""
    made: dict[str, Any] = {
        "id": f"u{number}",
        "root": None,
        "parent": None,
        "branch": "",
        "state": "accepted",
        "cursor": "$output",
        "queue_seq": number,
        "version": 1,
        "input": "input",
        "trigger": "push",
        "source": "test",
        "key": None,
        "attempt": 0,
        "retry_at": None,
        "iteration": 0,
        "hops": 0,
        "write_no": 0,
        "acked_write_no": None,
        "ack_by": None,
        "deadline_at": None,
        "held": None,
        "group_size": None,
        "received_at": AT,
        "updated_at": AT,
        "upstream": None,
        "error": None,
        "result": None,
        "data": encode({"n": number}),
    }
    return PendingUnit(**made | given)
