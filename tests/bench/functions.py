"""What a call of the author's function costs, beside an expression over the same data.

One call at a time through the step, as the pipeline process runs it: the data goes as JSON to
the helper and back. The commits around it are those of every step that reaches outside.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import uvloop

from pipo.clock import SystemClock
from pipo.connectors.contract import Context, OutsideStep, StepCall
from pipo.lang.model import Input, Output, Pipeline
from pipo.lang.texts import Texts
from pipo_runner.pipeline.definition.versions import Edition
from pipo_runner.pipeline.steps.functions import Functions
from tests.bench.language import DATA, EXPRESSION, FIELDS, plan_of, step_us

AIM_US = 250.0
CALLS = 20
ROUNDS = 200
MODULE = "def adult(data, meta):\n    return {**data, 'adult': data['age'] >= 18}\n"
META: Mapping[str, Any] = {
    "packet_id": "01M8PP0S4X8CNFYE99D4PHPHZY", "branch": "", "key": "01M8PP0S4X8CNFYE99D4PHPHZY",
    "pipeline": "bench", "version": 1, "node": "n", "input": "input", "trigger": "http",
    "source": "127.0.0.1", "received_at": 1796057621714, "attempt": 1, "hops": 0, "iteration": 0,
    "upstream": None,
}  # fmt: skip


def main() -> int:
    """Prints the line; 0."""
    report()
    return 0


def report() -> None:
    """One line: the time over an expression's, and the processor time of both processes."""
    with TemporaryDirectory(prefix="pipo-bench-") as folder:
        call_us, used_us = uvloop.run(_measured(Path(folder)))
    expression_us = step_us(plan_of(EXPRESSION, FIELDS), "keep")
    print(
        f"calling a function, over an expression                   {call_us - expression_us:9.2f} µs"
        f"   (aim < {AIM_US:.0f} µs; quickest of {ROUNDS} rounds; "
        f"processor time {used_us:,.0f} µs, of both processes)"
    )


async def _measured(folder: Path) -> tuple[float, float]:
    """A call's time in the quickest round and its processor time in all of them, µs."""
    context = Context("bench", folder, SystemClock(), lambda *_, **__: None)
    functions = Functions(context, concurrency=1)
    pipeline = Pipeline("bench", (Input("input", "push"),), Output(("n",), "stdout"), fn="x.fn.py")
    edition = Edition(1, pipeline, Texts("", {"x.fn.py": MODULE}), folder)
    step = functions.step("transform", "fn.adult", edition)
    try:
        await _round(step, 10 * CALLS)
        (helper,) = psutil.Process().children()
        taken, before = [], _used_s(helper)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await _round(step, CALLS)
            taken.append((time.perf_counter() - began) / CALLS * 1e6)
        used_us = (_used_s(helper) - before) / (ROUNDS * CALLS) * 1e6
        return min(taken), used_us
    finally:
        await functions.close()


async def _round(step: OutsideStep, count: int) -> None:
    for _ in range(count):
        await step.run(StepCall("01M8PP0S4X8CNFYE99D4PHPHZY", "n", DATA, META, {}))
        await asyncio.sleep(0)


def _used_s(helper: psutil.Process) -> float:
    theirs = helper.cpu_times()
    own = os.times()
    return own.user + own.system + theirs.user + theirs.system


if __name__ == "__main__":
    sys.exit(main())
