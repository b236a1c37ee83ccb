"""Looks at the output's database: record_exists, row_count, query.

A group of `record_exists` is one query. A database that was replaced since the
last look is opened anew; nothing here can write.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from pipo.connectors.contract import (
    CheckContext,
    CheckError,
    Checks,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.connectors.sqlite import lookups
from pipo.connectors.sqlite.lookups import Wanted, WantedShape
from pipo.connectors.sqlite.readers import Readers
from pipo.journal.readonly import Locked, ReadonlyRows
from pipo.journal.rows import Unreadable

_NO_ROW = object()


def build(context: CheckContext) -> Checks:
    return SqliteChecks()


class SqliteChecks:
    """One read-only connection per database file."""

    def __init__(self) -> None:
        self._readers = Readers()

    def place(self, target: Target) -> str:
        return str(target.output["path"])

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        looks: dict[int, Seen | CheckError] = {}
        failure = CheckError("not looked at")
        try:
            async with self._readers.reading(place) as rows:
                await _look_for_records(rows, place, targets, looks)
                for n, target in enumerate(targets):
                    if target.check != "record_exists":
                        looks[n] = await _asked(rows, place, target)
        except (CheckError, Unreadable) as error:
            failure = CheckError(error.message)
        return [looks.get(n, failure) for n in range(len(targets))]

    def judge(self, target: Target, seen: Seen) -> Judgement:
        match target.check:
            case "record_exists":
                passed = bool(seen.value)
                why = "" if passed else f"no row in {lookups.as_text(_wanted(target))}"
            case "row_count":
                least = _least(target)
                passed = seen.value >= least
                why = f"the query returned {seen.value} rows, fewer than {least}"
            case _:
                passed = seen.value is not _NO_ROW and seen.value not in (None, 0, "", b"")
                why = _untrue(seen.value)
        return Passed(seen.evidence) if passed else Pending(why, seen.evidence)

    async def close(self) -> None:
        await self._readers.close()


async def _look_for_records(
    rows: ReadonlyRows,
    place: str,
    targets: Sequence[Target],
    looks: dict[int, Seen | CheckError],
) -> None:
    wishes: dict[WantedShape, list[tuple[int, Wanted]]] = {}
    for n, target in enumerate(targets):
        if target.check == "record_exists":
            try:
                wish = _wanted(target)
            except CheckError as error:
                looks[n] = error
            else:
                wishes.setdefault(wish.shape, []).append((n, wish))
    for shape, run in wishes.items():
        size = lookups.rows_max(shape)
        for start in range(0, len(run), size):
            await _look_for_run(rows, place, shape, run[start : start + size], looks)


async def _look_for_run(
    rows: ReadonlyRows,
    place: str,
    shape: WantedShape,
    run: Sequence[tuple[int, Wanted]],
    looks: dict[int, Seen | CheckError],
) -> None:
    """Wishes of one shape; what is wrong with one is wrong with all.

    Raises: Locked, since whoever waits for its turn would wait as long.
    """
    values = lookups.padded([wish.values for _, wish in run])
    try:
        sql = lookups.which_exist(shape, len(values))
        found = await rows.rows(sql, list(chain.from_iterable(values)))
    except Locked:
        raise
    except Unreadable as error:
        failure = CheckError(lookups.explained(error.message, shape[0]))
        for n, _ in run:
            looks[n] = failure
        return
    there = {row[0] for row in found}
    query = lookups.as_one(shape)
    for position, (n, wish) in enumerate(run):
        is_there = position in there
        looks[n] = Seen(
            is_there,
            {
                "path": place,
                "query": query,
                "params": [lookups.shown(value) for value in wish.values],
                "found": is_there,
            },
        )


async def _asked(rows: ReadonlyRows, place: str, target: Target) -> Seen | CheckError:
    """What the author's own query says. Raises: Locked."""
    try:
        sql = str(target.settings.get("sql") or target.settings.get("query") or "")
        params = lookups.bound(target.settings.get("params") or [])
        value: Any
        if target.check == "row_count":
            value = (await rows.rows(lookups.counting(sql, max(1, _least(target))), params))[0][0]
        else:
            found = await rows.rows(lookups.first_row(sql), params)
            value = found[0][0] if found else _NO_ROW
    except CheckError as error:
        return error
    except Locked:
        raise
    except Unreadable as error:
        return CheckError(lookups.explained(error.message, target.output["table"]))
    seen = "no row" if value is _NO_ROW else lookups.shown(value)
    given = [lookups.shown(param) for param in params]
    return Seen(value, {"path": place, "query": lookups.shown(sql), "params": given, "value": seen})


def _wanted(target: Target) -> Wanted:
    """Raises: CheckError."""
    return lookups.wanted(target.output["table"], target.settings.get("where") or {})


def _untrue(value: Any) -> str:
    if value is _NO_ROW:
        return "the query returned no row"
    return f"the query's first value is {lookups.literal(value)}"


def _least(target: Target) -> int:
    """`min`, which a template may have made a text. Raises: CheckError."""
    least = target.settings.get("min", 1)
    if isinstance(least, str):
        try:
            return int(least)
        except ValueError:
            pass
    elif type(least) is int or (type(least) is float and least.is_integer()):
        return int(least)
    raise CheckError(f"`min` is {lookups.literal(least)}, not a whole number")
