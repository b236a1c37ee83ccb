"""What a file says is compiled once for its version, and costs little for each packet."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import WriteFailed
from pipo.journal import changes as journaled
from pipo.lang.grammar import parse
from tests.bench import language
from tests.unit.runner.pipeline.rig import Rig

# An expression or a template at every place that a packet passes.
EVERYWHERE = """
input:
  via: push
  validate: ["data.n != 0"]
  on_invalid: { message: "no ${data.n}" }
nodes:
  some: { from: input, filter: "data.n > 1" }
  shape: { from: some, transform: map, with: { data: { n: "${data.n + 1}" } } }
  told: { from: shape, tap: log, with: { message: "n is ${data.n}" } }
output:
  from: told
  to: sqlite
  with: { path: "./${meta.pipeline}.db", table: people, columns: { packet_id: "${meta.packet_id}" } }
  validate: ["data.n < 100"]
  on_invalid: { message: "${data.n} is large" }
  on_error: { message: "not written: ${error.message}" }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  on_fail: { message: "not there: ${meta.key}" }
"""


async def test_nothing_is_parsed_for_a_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: str, *more: Any) -> Any:
        parsed.append(text)
        return parse(text, *more)

    monkeypatch.setattr("pipo.lang.expressions.parse", counting)
    rig = Rig(EVERYWHERE, auto=True)
    assert "data.n > 1" in parsed
    parsed.clear()
    await rig.accept({"n": 5}, {"n": 1}, {"n": 0}, {"n": 500})
    rig.output.whole = WriteFailed("the disk is full")
    await rig.accept({"n": 6})
    ended = [type(change).__name__ for change in rig.journal.handed]
    assert {"Filtered", "Rejected", "DeadLettered", "Written"} <= set(ended)
    messages = [dead.error.message for dead in rig.journal.of(journaled.DeadLettered)]
    assert messages == ["501 is large", "not written: the disk is full"]
    assert parsed == []


# Ten times the aims of `make bench`: these fail when something collapses, not when the
# machine is busy.


@pytest.mark.slow
def test_a_check_takes_no_third_of_a_second() -> None:
    assert language.check_ms(repeats=5)[1] < 300


@pytest.mark.slow
def test_a_step_takes_microseconds() -> None:
    plan = language.plan_of(language.EXPRESSION, language.FIELDS)
    assert language.step_us(plan, "keep", rounds=20, calls=100) < 30
    assert language.step_us(plan, "shape", rounds=20, calls=100) < 150
