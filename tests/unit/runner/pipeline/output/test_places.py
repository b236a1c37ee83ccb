"""One place is written to by one caller at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pipo.connectors.contract import ConnectorError, Output, Refused, WriteFailed
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.life.recovery import unit_of
from pipo_runner.pipeline.output.places import Places
from pipo_runner.pipeline.output.preparing import Prepared
from tests.unit.runner.pipeline.rig import FakeOutput, pending, quiet


def prepared(output: FakeOutput, number: int, place: str = "a") -> Prepared:
    unit = unit_of(pending(number))
    settings = {"path": place}
    return Prepared(
        unit, cast(Plan, None), settings, unit.id, False, cast(Output, output), f"sqlite {place}"
    )


def nobody(*words: Any, **keys: Any) -> None:
    """No log."""


async def test_callers_of_one_place_follow_each_other() -> None:
    output, places = FakeOutput(), Places(nobody)
    output.hold()
    writes = [
        asyncio.create_task(places.write([prepared(output, n, place)], atomic=False))
        for n, place in enumerate("aab")
    ]
    await quiet()
    assert output.written == ["u0", "u2"]
    output.let_go()
    await asyncio.gather(*writes)
    assert output.written == ["u0", "u2", "u1"]
    assert not output.overlapped


async def test_one_that_gives_up_waiting_holds_up_nobody() -> None:
    output, places = FakeOutput(), Places(nobody)
    output.hold()
    writes = [
        asyncio.create_task(places.write([prepared(output, n)], atomic=False)) for n in range(3)
    ]
    await quiet()
    writes[1].cancel()
    output.let_go()
    await asyncio.gather(writes[0], writes[2])
    assert output.written == ["u0", "u2"]


async def test_what_the_output_prepared_comes_back_with_the_write() -> None:
    output = FakeOutput()
    one, other = prepared(output, 0), prepared(output, 1)
    one.made = ("a", "row")
    await Places(nobody).write([one, other], atomic=False)
    assert [unit.prepared for unit in output.writes[0]] == [("a", "row"), None]


async def test_a_failed_call_is_each_units_own_failure() -> None:
    output, places = FakeOutput(), Places(nobody)
    group = [prepared(output, 1), prepared(output, 2)]
    output.whole = ConnectorError("gone", hint="come back")
    first, second = (await places.write(group, atomic=False)).results
    assert isinstance(first, WriteFailed)
    assert (first.message, first.hint, second) == ("gone", "come back", first)
    output.whole = Refused("never")
    assert (await places.write(group, atomic=True)).results == [output.whole] * 2


async def test_a_bug_of_the_output_is_logged_and_is_a_failure() -> None:
    logged: list[str] = []
    output = FakeOutput(whole=ZeroDivisionError("oops"))
    places = Places(lambda level, message, **keys: logged.append(message))
    (result,) = (await places.write([prepared(output, 1)], atomic=False)).results
    assert isinstance(result, WriteFailed)
    assert "this is a bug in Pipo" in result.message
    assert logged == ["the write failed unexpectedly"]
