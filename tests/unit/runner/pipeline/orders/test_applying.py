"""Another version under a running pipeline: when it is in force, and what leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.connectors.contract import ConnectorError
from pipo.errors import (
    BadRequest,
    Forbidden,
    InvalidPipeline,
    InvalidState,
    NotFound,
    PipoError,
    Unavailable,
)
from pipo.journal import reads, versions
from pipo.journal.changes import Change
from pipo.journal.rows import Rows
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.lang.check import Source, parse
from pipo.lang.texts import Texts, on_disk
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.versions import Edition, Plans, added
from pipo_runner.pipeline.orders import applying
from pipo_runner.pipeline.orders.applying import Applied, Applying
from tests.stack import soon
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import accepted
from tests.unit.runner.pipeline.rig import AT, FakeClock

FIRST = """pipo: 1
name: people
input: { via: push, schema: ./a.schema.json }
nodes:
  shape: { from: input, transform: map, with: { data: first } }
output: { from: shape, to: stdout }
"""
FILES = {"./a.schema.json": "{}"}
SECOND = FIRST.replace("data: first", "data: second")
PROGRAM = FIRST.replace(
    "output: { from: shape",
    "  run: { from: shape, tap: exec, with: { command: date } }\noutput: { from: run",
)


@dataclass
class Held:
    """A journal whose commits wait until the test lets them land."""

    journal: SqliteJournal
    waiting: list[tuple[tuple[Change, ...], Callable[[BaseException | None], None]]] = field(
        default_factory=list
    )
    hold: bool = False

    @property
    def rows(self) -> Rows:
        return self.journal.rows

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None:
        self.waiting.append((changes, done))
        if not self.hold:
            self.land()

    def land(self) -> None:
        changes, done = self.waiting.pop()
        self.journal.submit(*changes, done=done)


class Running:
    """A pipeline that runs its first version, from a file in `folder`."""

    def __init__(self, folder: Path, journal: SqliteJournal) -> None:
        self.file = folder / "people.pipo"
        self.file.write_text(FIRST)
        (folder / "a.schema.json").write_text("{}")
        self.ledger = Held(journal)
        self.refuses: PipoError | None = None
        self.unready: Exception | None = None
        self.ready: list[int] = []
        self.in_force: list[int] = []
        self.uploaded_code = False
        self.plans = Plans(registry.manifests(), folder, lambda *words: NoStep())  # type: ignore[arg-type]
        pipeline = parse(Source(FIRST, str(self.file), FILES), registry.manifests())
        self.first = Edition(1, pipeline, Texts(FIRST, FILES), folder)
        self.plans.put_in_force(self.first)

    def make(self) -> Applying:
        return Applying(
            name="people",
            file=self.file,
            journal=self.ledger,
            plans=self.plans,
            manifests=registry.manifests(),
            may=self._may,
            make_ready=self._make_ready,
            in_force=lambda edition: self.in_force.append(edition.version),
            clock=FakeClock(),
            redact=lambda text: text.replace("s3cr3t", "***"),
            uploaded_code=self.uploaded_code,
            on_disk=lambda: on_disk(self.file.parent),
        )

    def _may(self, what: str) -> None:
        if self.refuses is not None:
            raise self.refuses

    async def _make_ready(self, plan: Plan) -> None:
        self.ready.append(plan.version)
        if self.unready is not None:
            raise self.unready

    async def apply(self, source: str, **given: Any) -> Applied:
        words = {"files": {}, "by": "ada", "reason": "", **given}
        files = words.pop("files")
        return await self.make().apply(source, files, **words)

    @property
    def current(self) -> int:
        return self.plans.current().version

    async def stored(self) -> list[tuple[int, str, str]]:
        found = (await versions.history(self.ledger.rows)).versions
        return [(one.version, one.author, one.reason) for one in found]

    async def untouched(self) -> bool:
        """Nothing was written, and nothing is in force or prepared but the first version."""
        stored = [one[0] for one in await self.stored()]
        with pytest.raises(KeyError):
            self.plans.of(2)
        return (stored, self.current, self.in_force) == ([1], 1, [])


class NoStep:
    pure = True


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    (tmp_path / "work").mkdir()
    journal = open_quick(tmp_path / "journal")
    made = Running(tmp_path / "work", journal)
    await journal.commit(added(made.first, "human", "human", "first start", AT))
    yield made
    await journal.close(clean=False)


async def test_an_applied_text_is_in_force_once_it_is_on_disk(running: Running) -> None:
    """Edges 11 and 343: whatever began before keeps the version that it began with."""
    running.ledger.hold = True
    asked = asyncio.create_task(running.apply(SECOND))
    await soon(lambda: running.ledger.waiting)
    assert (running.current, running.ready, running.in_force) == (1, [2], [])
    running.ledger.land()
    assert await asked == Applied(2, 1, True, 0, [])
    assert (running.current, running.in_force) == (2, [2])
    assert await running.stored() == [(2, "ada", "applied"), (1, "human", "first start")]
    page = await reads.events(running.ledger.rows)
    assert [event.type for event in page.events] == ["version.applied"]
    found = await versions.latest(running.ledger.rows)
    assert found is not None
    assert (found.source, found.files, found.folder) == (SECOND, FILES, str(running.file.parent))


async def test_packets_of_the_version_before_are_counted(running: Running) -> None:
    """Edge 346."""
    await running.ledger.journal.commit(accepted(1), accepted(2))
    assert (await running.apply(SECOND)).pending_older == 2


async def test_an_apply_whose_asker_goes_away_comes_into_force_all_the_same(
    running: Running,
) -> None:
    running.ledger.hold = True
    asked = asyncio.create_task(running.apply(SECOND))
    await soon(lambda: running.ledger.waiting)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    running.ledger.land()
    await soon(lambda: running.in_force)
    assert running.current == 2


async def test_two_at_once_are_refused(running: Running) -> None:
    """Edge 351: what the second one was compared with would not be in force any more."""
    running.ledger.hold = True
    made = running.make()
    first = asyncio.create_task(made.apply(SECOND, {}, by="", reason=""))
    await soon(lambda: running.ledger.waiting)
    with pytest.raises(InvalidState, match="another version of people is being applied"):
        await made.rollback("1", by="")
    running.ledger.hold = False
    running.ledger.land()
    assert (await first).version == 2
    assert (await made.rollback("1", by="")).version == 3


async def test_a_commit_that_fails_leaves_the_version_before(running: Running) -> None:
    running.ledger.hold = True
    asked = asyncio.create_task(running.apply(SECOND))
    await soon(lambda: running.ledger.waiting)
    running.ledger.waiting.pop()[1](Unavailable("the journal failed"))
    with pytest.raises(Unavailable):
        await asked
    assert await running.untouched()


async def test_the_same_text_changes_nothing(running: Running) -> None:
    """Edge 344."""
    assert await running.apply(FIRST) == Applied(1, 1, False, 0, [])
    assert await running.make().rollback("v1", by="") == Applied(1, 1, False, 0, [], 1)
    assert await running.untouched()


async def test_a_rollback_is_a_version_of_its_own(running: Running) -> None:
    """Edge 344: v3 with v1's hash."""
    await running.apply(SECOND)
    done = await running.make().rollback("v1", by="")
    assert (done.version, done.previous, done.rolled_back_to) == (3, 2, 1)
    assert await running.stored() == [
        (3, "api", "rollback to v1"),
        (2, "ada", "applied"),
        (1, "human", "first start"),
    ]
    found = (await versions.history(running.ledger.rows)).versions
    assert found[0].hash == found[2].hash
    assert running.current == 3


async def test_a_rollback_says_which_files_have_changed(running: Running) -> None:
    """Edge 356: it runs with the text that the version was made with."""
    (running.file.parent / "a.schema.json").write_text("true")
    await running.apply(SECOND)
    (warning,) = (await running.make().rollback("1", by="")).warnings
    assert (warning.code, warning.path, warning.version) == ("file_changed", "./a.schema.json", 1)
    assert (warning.recorded, warning.current) == (Texts("{}").hash, Texts("true").hash)
    (running.file.parent / "a.schema.json").unlink()
    (warning,) = (await running.make().rollback("1", by="")).warnings
    assert warning.current is None
    assert running.plans.edition(3).texts.files == FILES


async def test_files_that_are_sent_are_all_there_is(running: Running) -> None:
    """Left out, those in force are kept; what stands on this machine's disk is not looked at."""
    renamed = SECOND.replace("./a.schema.json", "./b.schema.json")
    (running.file.parent / "b.schema.json").write_text("{}")
    for files in ({}, {"./a.schema.json": "{}"}):
        with pytest.raises(InvalidPipeline, match="P014"):
            await running.apply(renamed, files=files)
    # One that is in force is not taken from there, once any are sent.
    with pytest.raises(InvalidPipeline, match="P014"):
        await running.apply(SECOND, files={"./b.schema.json": "{}"})
    assert await running.untouched()
    await running.apply(renamed, files={"./b.schema.json": "true", "./c": "not named"})
    assert running.plans.edition(2).texts.files == {"./b.schema.json": "true"}


async def test_a_secret_in_a_reason_is_masked_and_both_words_are_cut(running: Running) -> None:
    """Edge 361."""
    await running.apply(SECOND, by="s3cr3t" + "b" * 300, reason="s3cr3t" + "r" * 3000)
    _, author, reason = (await running.stored())[0]
    assert (author, reason) == ("***" + "b" * 197, "***" + "r" * 1997)


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        (SECOND + "bufer: {}\n", InvalidPipeline, "P002"),
        # Edge 349: the check comes first.
        (SECOND + "concurrency: none\n", InvalidPipeline, "P002"),
        (SECOND + "concurrency: 9\n", InvalidState, "^concurrency may not change while people"),
        (SECOND.replace("name: people", "name: others"), InvalidState, "^name may not change"),
        (PROGRAM, Forbidden, r"^node run of this text is code that is not in .*people\.pipo"),
    ],
)
async def test_what_is_refused_leaves_nothing(
    running: Running, source: str, error: type[PipoError], match: str
) -> None:
    """Edge 348."""
    with pytest.raises(error, match=match):
        await running.apply(source)
    assert await running.untouched()
    assert running.ledger.waiting == []


@pytest.mark.parametrize("what", ["apply", "rollback"])
async def test_a_pipeline_that_may_not_is_not_changed(running: Running, what: str) -> None:
    """Edges 348 and 351: what drains or starts says so."""
    running.refuses = InvalidState("people is draining")
    with pytest.raises(InvalidState, match="draining"):
        await (running.apply(SECOND) if what == "apply" else running.make().rollback("1", by=""))
    assert await running.untouched()


async def test_a_stop_that_comes_between_takes_no_version(running: Running) -> None:
    async def make_ready(plan: Plan) -> None:
        running.refuses = InvalidState("people is draining")

    running._make_ready = make_ready  # type: ignore[method-assign]
    with pytest.raises(InvalidState, match="draining"):
        await running.apply(SECOND)
    assert await running.untouched()


async def test_a_version_that_cannot_be_made_ready_leaves_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unready, told in (
        (ConnectorError("no such host"), InvalidState),
        (NotFound("no program"), NotFound),
    ):
        running.unready = unready
        with pytest.raises(told):
            await running.apply(SECOND)
        assert await running.untouched()

    async def never(plan: Plan) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(applying, "READY_S", 0.01)
    running._make_ready = never  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="was not ready within"):
        await running.apply(SECOND)
    assert await running.untouched()


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("newest", BadRequest),
        ("", BadRequest),
        ("v", BadRequest),
        ("2", NotFound),
        ("v0", NotFound),
    ],
)
async def test_a_version_that_is_none(running: Running, word: str, error: type[PipoError]) -> None:
    """Edge 347."""
    with pytest.raises(error) as caught:
        await running.make().rollback(word, by="")
    assert ("there are v1 to v1" in caught.value.hint) is (error is NotFound)


async def test_code_from_the_operators_file_may_be_applied(running: Running) -> None:
    """Decision 38: what stands in the pipeline's own file, or ran before, is the operator's."""
    running.file.write_text(PROGRAM + "# saved\n")
    await running.apply(PROGRAM)
    running.file.unlink()
    # It is in force now, and another step beside it is no code.
    await running.apply(PROGRAM.replace("data: first", "data: second"))
    await running.apply(SECOND)
    with pytest.raises(Forbidden):
        await running.apply(PROGRAM)
    await running.make().rollback("2", by="")
    running.uploaded_code = True
    await running.apply(PROGRAM.replace("command: date", "command: uptime"))
    assert running.current == 6


async def test_the_files_of_functions_are_code_and_schemas_are_none(running: Running) -> None:
    source = FIRST.replace("name: people", "name: people\nfn: ./f.py")
    files = {"./f.py": "from . import g\n", "./g.py": "", **FILES}
    pipeline = parse(Source(source, "/people.pipo", files), registry.manifests())
    edition = Edition(2, pipeline, Texts(source, files), Path("/"))
    assert {name for name, _ in applying._code_of(edition)} == {"./f.py", "./g.py"}


@pytest.mark.slow
async def test_functions_that_do_not_import_are_refused(running: Running) -> None:
    running.uploaded_code = True
    source = FIRST.replace("name: people", "name: people\nfn: ./f.py")
    for text, told in (("import nothing_like_it", "P059"), ("from . import gone", "P059")):
        with pytest.raises(InvalidPipeline, match=told):
            await running.apply(source, files={"./f.py": text, **FILES})
    assert await running.untouched()
    await running.apply(source, files={"./f.py": "from . import g\n", "./g.py": "", **FILES})
    assert running.current == 2
