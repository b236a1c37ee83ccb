"""Looks at the output's database: record_exists, row_count, query.

A group of `record_exists` is one query. A database that was replaced since the
last look is opened anew; nothing here can write.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pipo.connectors.contract import CheckError, Checks, Judgement, Passed, Pending, Seen, Target
from pipo.connectors.sqlite import lookups
from pipo.connectors.sqlite.lookups import Wanted
from pipo.connectors.sqlite.readers import Readers
from pipo.journal.readonly import ReadonlyRows
from pipo.journal.rows import Unreadable


def build() -> Checks:
    return SqliteChecks()


class SqliteChecks:
    """One read-only connection per database file."""

    def __init__(self) -> None:
        self._readers = Readers()

    def place(self, target: Target) -> str:
        return str(target.output["path"])

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        looks: list[Seen | CheckError] = [CheckError("not looked at")] * len(targets)
        try:
            async with self._readers.reading(place) as rows:
                await _look_for_records(rows, place, targets, looks)
                for n, target in enumerate(targets):
                    if target.check != "record_exists":
                        looks[n] = await _asked(rows, place, target)
        except (CheckError, Unreadable) as error:
            return [_as_error(error)] * len(targets)
        return looks

    def judge(self, target: Target, seen: Seen) -> Judgement:
        match target.check:
            case "record_exists":
                passed, why = bool(seen.value), f"no row in {seen.evidence['wanted']}"
            case "row_count":
                least = _least(target)
                passed = seen.value >= least
                why = f"the query returned {seen.value} rows, fewer than {least}"
            case _:
                passed = seen.value not in (None, 0, "", b"")
                why = f"the query's first value is {seen.evidence['value']!r}"
        return Passed(seen.evidence) if passed else Pending(why, seen.evidence)

    async def close(self) -> None:
        await self._readers.close()


async def _look_for_records(
    rows: ReadonlyRows,
    place: str,
    targets: Sequence[Target],
    looks: list[Seen | CheckError],
) -> None:
    wishes: list[tuple[int, Wanted]] = []
    for n, target in enumerate(targets):
        if target.check == "record_exists":
            try:
                where = target.settings.get("where") or {}
                wishes.append((n, lookups.wanted(target.output["table"], where)))
            except CheckError as error:
                looks[n] = error
    for shape, group in groupby(sorted(wishes, key=_shape), key=_shape):
        run = list(group)
        size = max(1, lookups.VARIABLES_MAX // len(shape[1]))
        for start in range(0, len(run), size):
            await _look_for_run(rows, place, run[start : start + size], looks)


async def _look_for_run(
    rows: ReadonlyRows,
    place: str,
    run: Sequence[tuple[int, Wanted]],
    looks: list[Seen | CheckError],
) -> None:
    """Wishes of one shape; what is wrong with one is wrong with all."""
    table, columns = run[0][1].shape
    sql = lookups.which_exist(table, columns, len(run))
    try:
        found = await rows.rows(sql, [value for _, wish in run for value in wish.values])
    except Unreadable as error:
        for n, _ in run:
            looks[n] = _as_error(error)
        return
    there = {row[0] for row in found}
    for position, (n, wish) in enumerate(run):
        evidence = {
            "path": place,
            "query": lookups.as_one(wish),
            "params": list(wish.values),
            "wanted": lookups.as_text(wish),
            "found": position in there,
        }
        looks[n] = Seen(position in there, evidence)


async def _asked(rows: ReadonlyRows, place: str, target: Target) -> Seen | CheckError:
    """What the author's own query says."""
    try:
        sql = str(target.settings.get("sql") or target.settings.get("query") or "")
        params = lookups.bound(target.settings.get("params") or [])
        value: Any
        if target.check == "row_count":
            limit = max(1, _least(target))
            value = (await rows.rows(lookups.counting(sql), [*params, limit]))[0][0]
        else:
            found = await rows.rows(lookups.first_row(sql), params)
            value = found[0][0] if found else None
    except (CheckError, Unreadable) as error:
        return _as_error(error)
    shown = f"{len(value)} bytes" if isinstance(value, bytes) else value
    return Seen(value, {"path": place, "query": sql, "params": list(params), "value": shown})


def _least(target: Target) -> int:
    least = target.settings.get("min", 1)
    try:
        return int(least)
    except (TypeError, ValueError):
        raise CheckError(f"`min` is {least!r}, not a number") from None


def _shape(wish: tuple[int, Wanted]) -> tuple[str, tuple[str, ...]]:
    return wish[1].shape


def _as_error(error: CheckError | Unreadable) -> CheckError:
    return error if isinstance(error, CheckError) else CheckError(error.message)
