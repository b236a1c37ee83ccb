"""What every output and every check does, as named behaviours.

A connector's test describes its connector once (`OutputCase`, `CheckCase`) and
lists the behaviours it claims; each is a coroutine that takes the case and a
fresh folder. They run against real files and databases.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import (
    CheckContext,
    CheckError,
    Checks,
    Context,
    Flush,
    Impossible,
    Judgement,
    Output,
    Passed,
    Pending,
    Refused,
    Repeat,
    Target,
    WriteFailed,
    WriteUnit,
)

Settings = Mapping[str, Any]


@dataclass
class OutputCase:
    """An output under test.

    `settings` are rendered, for a destination in the given folder; `keys` reads back
    which keys stand there, in order. `bad` is data that it must refuse or fail.
    """

    name: str
    settings: Callable[[Path], Settings]
    keys: Callable[[Settings], list[str]]
    bad: Any = None
    good: Any = field(default_factory=lambda: {"n": 1})

    def build(self, folder: Path) -> Output:
        return registry.build_output(self.name, context(folder))


@dataclass
class CheckCase:
    """A check under test: `present` and `absent` make targets in a folder, after `fill`."""

    output: str
    fill: Callable[[Path], Awaitable[None]]
    present: Callable[[Path], Target]
    absent: Callable[[Path], Target]
    broken: Callable[[Path], Target]
    never: Callable[[Path], Target] | None = None

    def build(self) -> Checks:
        return registry.build_checks(self.output, CheckContext(SystemClock()))


def context(folder: Path, **more: Any) -> Context:
    return Context(
        pipeline="p", folder=folder, clock=SystemClock(), log=lambda *a, **k: None, **more
    )


def unit(key: str, data: Any, settings: Settings, repeat: Repeat = "first") -> WriteUnit:
    return WriteUnit(id=key, key=key, data=data, settings=settings, repeat=repeat)


async def write(
    output: Output,
    settings: Settings,
    *records: tuple[str, Any],
    repeat: Repeat = "first",
    atomic: bool = False,
) -> Flush:
    return await output.write(
        [unit(key, data, settings, repeat) for key, data in records], atomic=atomic
    )


def kept(flush: Flush) -> dict[str, int]:
    """The notes that a flush leaves in the journal."""
    return {name: size for name, size in flush.marks.items() if size is not None}


def failed(result: Any) -> bool:
    return isinstance(result, (WriteFailed, Refused))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def snapshot(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def swap_for_a_copy(path: str, moved: Path) -> None:
    """Puts a copy in the file's place; the file itself is moved away."""
    shutil.copy(path, f"{path}.copy")
    os.rename(path, moved)
    os.replace(f"{path}.copy", path)


def clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


# ── outputs ──────────────────────────────────────────────────────────────────


async def opens_and_closes_twice(case: OutputCase, folder: Path) -> None:
    output = case.build(folder)
    await output.close()
    await output.open({})
    await output.open({})
    await write(output, case.settings(folder), ("a", case.good))
    await output.close()
    await output.close()
    assert case.keys(case.settings(folder)) == ["a"]


async def opening_touches_nothing(case: OutputCase, folder: Path) -> None:
    output = case.build(folder)
    await output.open({})
    await output.recover(case.settings(folder))
    await output.close()
    assert names(folder) == []


async def folders_are_made(case: OutputCase, folder: Path) -> None:
    settings = dict(case.settings(folder))
    settings["path"] = str(folder / "not" / "there yet" / Path(settings["path"]).name)
    output = case.build(folder)
    await write(output, settings, ("a", case.good))
    await output.close()
    assert case.keys(settings) == ["a"]


async def a_group_keeps_its_order(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    names = [f"k{n:03}" for n in range(150)]
    first = await write(output, settings, *((name, case.good) for name in names[:3]))
    rest = await write(output, settings, *((name, case.good) for name in names[3:]))
    await output.close()
    assert case.keys(settings) == names
    assert not any(failed(r) for r in [*first.results, *rest.results])


async def a_bad_unit_of_a_group_fails_alone(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    flush = await write(output, settings, ("a", case.good), ("bad", case.bad), ("c", case.good))
    await output.close()
    assert [failed(result) for result in flush.results] == [False, True, False]
    assert case.keys(settings) == ["a", "c"]


async def a_bad_unit_of_a_batch_takes_all_along(case: OutputCase, folder: Path) -> None:
    """Nothing of the batch stays; the error is what the bad unit has when it is written alone."""
    settings = case.settings(folder)
    output = case.build(folder)
    await write(output, settings, ("before", case.good))
    (alone,) = (await write(output, settings, ("bad", case.bad))).results
    assert isinstance(alone, (WriteFailed, Refused))
    with pytest.raises(WriteFailed) as caught:
        await write(output, settings, ("a", case.good), ("bad", case.bad), atomic=True)
    assert (caught.value.message, caught.value.hint) == (alone.message, alone.hint)
    assert case.keys(settings) == ["before"]
    flush = await write(output, settings, ("a", case.good), ("b", case.good), atomic=True)
    await output.close()
    assert len(flush.results) == 2
    assert not any(failed(result) for result in flush.results)
    assert case.keys(settings) == ["before", "a", "b"]


async def one_key_twice_in_a_batch_makes_one_record(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    for _ in range(2):
        flush = await write(
            output,
            settings,
            *((name, case.good) for name in ("a", "b", "a")),
            repeat="repeated",
            atomic=True,
        )
        assert [failed(result) for result in flush.results] == [False] * 3
    await output.close()
    assert case.keys(settings) == ["a", "b"]


async def one_key_twice_makes_one_record(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    twins = await write(
        output, settings, ("a", case.good), ("a", case.good), ("b", case.good), repeat="repeated"
    )
    again = await write(output, settings, ("a", case.good), ("b", case.good), repeat="repeated")
    await output.close()
    assert not any(failed(result) for result in [*twins.results, *again.results])
    assert case.keys(settings) == ["a", "b"]


async def a_write_is_found_after_a_crash(case: OutputCase, folder: Path) -> None:
    """The journal lost the last group's commit; `open` gets the marks of the one before."""
    settings = case.settings(folder)
    output = case.build(folder)
    before = await write(output, settings, ("a", case.good))
    await write(output, settings, ("b", case.good), ("c", case.good))
    reborn = case.build(folder)
    await reborn.open(kept(before))
    await reborn.recover(settings)
    again = await write(reborn, settings, ("b", case.good), ("d", case.good), repeat="recovered")
    await reborn.close()
    await output.close()
    assert not any(failed(result) for result in again.results)
    assert case.keys(settings) == ["a", "b", "c", "d"]


async def a_cancelled_write_can_be_repeated(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    await write(output, settings, ("a", case.good))
    task = asyncio.ensure_future(write(output, settings, ("b", case.good), ("c", case.good)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await write(output, settings, ("b", case.good), ("c", case.good), repeat="repeated")
    await output.close()
    assert case.keys(settings) == ["a", "b", "c"]


async def a_replaced_file_is_noticed(case: OutputCase, folder: Path) -> None:
    """The second record goes to the file that the path means now, not to the one moved away."""
    settings = case.settings(folder)
    output = case.build(folder)
    await write(output, settings, ("a", case.good))
    swap_for_a_copy(settings["path"], folder / "moved")
    await write(output, settings, ("b", case.good))
    await output.close()
    assert case.keys(settings) == ["a", "b"]
    assert case.keys({**settings, "path": str(folder / "moved")}) == ["a"]


async def a_deleted_file_is_made_again(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    output = case.build(folder)
    await write(output, settings, ("a", case.good))
    clear(folder)
    await write(output, settings, ("a", case.good), repeat="repeated")
    await output.close()
    assert case.keys(settings) == ["a"]


async def a_parent_that_is_a_file_fails_the_write(case: OutputCase, folder: Path) -> None:
    (folder / "occupied").write_text("")
    settings = {**case.settings(folder), "path": str(folder / "occupied" / "x")}
    output = case.build(folder)
    with pytest.raises(WriteFailed, match=r"occupied.*: (File exists|Not a directory)"):
        await write(output, settings, ("a", case.good))
    await output.close()


async def a_folder_in_place_of_the_file_fails_the_write(case: OutputCase, folder: Path) -> None:
    settings = case.settings(folder)
    os.mkdir(settings["path"])
    output = case.build(folder)
    with pytest.raises(WriteFailed, match=r"^/.*"):
        await write(output, settings, ("a", case.good))
    await output.close()


async def many_places_are_written_at_once(case: OutputCase, folder: Path) -> None:
    """More files than may stay open, half of them twice."""
    here = case.settings(folder)
    places = [{**here, "path": f"{here['path']}.{n}"} for n in range(70)]
    output = case.build(folder)
    await asyncio.gather(*(write(output, place, ("a", case.good)) for place in places))
    await asyncio.gather(*(write(output, place, ("b", case.good)) for place in places[:35]))
    await output.close()
    assert [len(case.keys(place)) for place in places] == [2] * 35 + [1] * 35
    assert len({output.place(place, "k") for place in places}) == 70


EVERY_OUTPUT: Sequence[Callable[[OutputCase, Path], Awaitable[None]]] = (
    opens_and_closes_twice,
    opening_touches_nothing,
    a_group_keeps_its_order,
    a_bad_unit_of_a_group_fails_alone,
    a_bad_unit_of_a_batch_takes_all_along,
)

OUTPUT_WITH_A_FILE: Sequence[Callable[[OutputCase, Path], Awaitable[None]]] = (
    folders_are_made,
    one_key_twice_makes_one_record,
    one_key_twice_in_a_batch_makes_one_record,
    a_write_is_found_after_a_crash,
    a_cancelled_write_can_be_repeated,
    a_replaced_file_is_noticed,
    a_deleted_file_is_made_again,
    a_parent_that_is_a_file_fails_the_write,
    a_folder_in_place_of_the_file_fails_the_write,
    many_places_are_written_at_once,
)


# ── checks ───────────────────────────────────────────────────────────────────


async def judged(checks: Checks, *targets: Target) -> list[Judgement | CheckError]:
    place = checks.place(targets[0])
    looks = await checks.look(place, targets)
    assert len(looks) == len(targets)
    return [
        seen if isinstance(seen, CheckError) else checks.judge(target, seen)
        for target, seen in zip(targets, looks, strict=True)
    ]


async def present_passes_with_evidence(case: CheckCase, folder: Path) -> None:
    await case.fill(folder)
    checks = case.build()
    (verdict,) = await judged(checks, case.present(folder))
    await checks.close()
    assert isinstance(verdict, Passed)
    assert verdict.evidence


async def absent_is_not_yet(case: CheckCase, folder: Path) -> None:
    await case.fill(folder)
    checks = case.build()
    (verdict,) = await judged(checks, case.absent(folder))
    await checks.close()
    assert isinstance(verdict, Pending)
    assert verdict.why
    assert verdict.evidence


async def a_look_that_cannot_run_is_an_error(case: CheckCase, folder: Path) -> None:
    await case.fill(folder)
    checks = case.build()
    (verdict,) = await judged(checks, case.broken(folder))
    await checks.close()
    assert isinstance(verdict, CheckError)
    assert verdict.message


async def what_can_never_be_is_impossible(case: CheckCase, folder: Path) -> None:
    assert case.never is not None
    await case.fill(folder)
    checks = case.build()
    (verdict,) = await judged(checks, case.never(folder))
    await checks.close()
    assert isinstance(verdict, Impossible)


async def a_group_is_judged_one_by_one(case: CheckCase, folder: Path) -> None:
    await case.fill(folder)
    checks = case.build()
    mixed = [case.absent(folder), case.broken(folder), case.present(folder), case.absent(folder)]
    verdicts = [
        verdict
        for place in dict.fromkeys(map(checks.place, mixed))
        for verdict in await judged(checks, *(t for t in mixed if checks.place(t) == place))
    ]
    await checks.close()
    kinds = [type(verdict) for verdict in verdicts]
    assert sorted(k.__name__ for k in kinds) == ["CheckError", "Passed", "Pending", "Pending"]


async def a_look_changes_nothing(case: CheckCase, folder: Path) -> None:
    await case.fill(folder)
    before = snapshot(folder)
    checks = case.build()
    for target in (case.present(folder), case.absent(folder), case.broken(folder)):
        await judged(checks, target)
    await checks.close()
    await checks.close()
    assert snapshot(folder) == before


EVERY_CHECK: Sequence[Callable[[CheckCase, Path], Awaitable[None]]] = (
    present_passes_with_evidence,
    absent_is_not_yet,
    a_look_that_cannot_run_is_an_error,
    a_group_is_judged_one_by_one,
    a_look_changes_nothing,
)
