"""The pure steps: log and map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import Context, PureStep, Refused, StepCall


def step(role: Any, name: str, lines: list[Any] | None = None) -> PureStep:
    def log(level: str, message: str, **keys: Any) -> None:
        assert lines is not None
        lines.append((level, message, keys))

    made = registry.build_step(role, name, Context("p", Path(), SystemClock(), log))
    assert made.pure
    return made


def call(data: Any, /, **settings: Any) -> StepCall:
    return StepCall(unit="u1", node="say", data=data, meta={}, settings=settings)


@pytest.mark.parametrize(
    ("settings", "level", "message"),
    [
        ({}, "info", '{"n":18446744073709551616}'),
        ({"level": "warn", "message": "hi"}, "warn", "hi"),
        ({"message": {"a": 1}}, "info", '{"a":1}'),
    ],
)
def test_log_writes_a_line_and_a_note(settings: Any, level: str, message: str) -> None:
    lines: list[Any] = []
    made = call({"n": 2**64}, **settings)
    step("tap", "log", lines).run(made)
    assert lines == [(level, message, {"node": "say", "packet_id": "u1"})]
    assert made.notes == [("log", {"level": level, "message": message})]


@pytest.mark.parametrize("value", [None, 0, {"a": [1]}, "x"])
def test_map_makes_data(value: Any) -> None:
    assert step("transform", "map").run(call({}, data=value)) == value


def test_map_refuses_to_make_nothing() -> None:
    with pytest.raises(Refused, match="yields nothing") as caught:
        step("transform", "map").run(call({}))
    assert "?? null" in caught.value.hint
