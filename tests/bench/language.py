"""What the language costs: a file's check, an expression, a rendered map. Each beside its aim.

The expression and the map are steps of a plan, compiled and run as the pipeline process does.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import Context, PureStep, StepCall
from pipo.lang.check import Source, check, parse
from pipo_runner.pipeline.definition.plan import Plan, make_plan

LINES = 200
EXPRESSION = 'data.age >= 18 && lower(trim(data.email)) != ""'
FIELDS = {
    "name": "${trim(data.name)}",
    "email": "${lower(trim(data.email))}",
    "age": "${data.age}",
    "adult": "${data.age >= 18}",
    "city": "${data.address.city}",
    "tags": "${data.tags}",
    "greeting": "hello ${data.name}",
    "note": "${default(data.note, 'none')}",
    "source": "bench",
    "label": "${data.name}, ${data.address.city}",
}
DATA = {
    "name": " Ada Lovelace ",
    "email": " Ada@Example.com ",
    "age": 36,
    "address": {"city": "London"},
    "tags": ["first", "of", "many"],
}


def main() -> int:
    """Prints the three lines; 0."""
    report()
    return 0


def report() -> None:
    """The three lines, each with what it should stay under."""
    first_ms, next_ms = check_ms()
    plan = plan_of(EXPRESSION, FIELDS)
    print(
        f"checking a file of {LINES} lines                              {next_ms:9.2f} ms"
        f"   (aim < 30 ms; the first one in a process {first_ms:.1f} ms)"
    )
    print(
        f"evaluating an expression                                 {step_us(plan, 'keep'):9.2f} µs   (aim < 3 µs)"
    )
    print(
        f"rendering a map of ten fields                            {step_us(plan, 'shape'):9.2f} µs   (aim < 15 µs)"
    )


def check_ms(repeats: int = 30) -> tuple[float, float]:
    """The first check of a process and the median of the next, milliseconds."""
    manifests = registry.manifests()
    source = Source(file_of(LINES), "bench.pipo")

    def checked() -> None:
        (report,) = check([source], manifests)
        assert report.findings == [], report.findings

    taken = [_seconds(checked) * 1000.0 for _ in range(1 + repeats)]
    return taken[0], statistics.median(taken[1:])


def step_us(plan: Plan, node: str, *, rounds: int = 200, calls: int = 500) -> float:
    """Median of one step on one packet, microseconds."""
    run = plan.nodes[node].run
    scope = {"data": DATA, "env": {}, "secrets": {}}
    call = StepCall("0" * 26, node, DATA, {}, {})

    def stepped() -> None:
        for _ in range(calls):
            run(scope, call)

    return statistics.median(_seconds(stepped) for _ in range(rounds)) / calls * 1_000_000.0


def plan_of(expression: str, fields: dict[str, str]) -> Plan:
    """A filter `keep` and a map `shape`, as a pipeline process compiles them."""
    manifests = registry.manifests()
    entries = "\n".join(f"        {name}: {text!r}" for name, text in fields.items())
    text = (
        "pipo: 1\nname: bench\ninput: { via: push }\nnodes:\n"
        f"  keep: {{ from: input, filter: '{expression}' }}\n"
        f"  shape:\n    from: keep\n    transform: map\n    with:\n      data:\n{entries}\n"
        "output: { from: shape, to: stdout }\n"
    )
    context = Context("bench", Path(), SystemClock(), lambda *said, **keys: None)

    def build_step(role: str, name: str) -> PureStep:
        step = registry.build_step("transform", name, context)
        assert step.pure, name
        return step

    return make_plan(
        parse(Source(text, "bench.pipo"), manifests),
        1,
        manifests=manifests,
        folder=Path(),
        build_step=build_step,
    )


def file_of(lines: int) -> str:
    """A pipeline of so many lines: a chain of maps, filters and logs behind one input."""
    text = ["pipo: 1", "name: bench", "input: { via: push }", "nodes:"]
    before = "input"
    while len(text) < lines - 7:
        node = f"step{len(text)}"
        text += [
            f"  {node}:",
            f"    from: {before}",
            "    transform: map",
            "    with:",
            "      data:",
            '        name: "${trim(data.name)}"',
            '        email: "${lower(trim(data.email))}"',
        ]
        before = node
    text += [
        *(f"# {number}" for number in range(lines - 7 - len(text))),
        "output:",
        f"  from: {before}",
        "  to: file",
        "  with: { path: ./out/bench.jsonl }",
        "delivered:",
        "  check: line_contains",
        '  with: { value: "${meta.packet_id}" }',
    ]
    return "\n".join(text) + "\n"


def _seconds(call: Callable[[], Any]) -> float:
    # Not the wall's: what else the machine does counts for nothing.
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
