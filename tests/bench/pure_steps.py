"""What ten pure steps in a row cost beside one: a packet's whole way, from the push to delivered.

Two pipelines that differ in their steps alone take turns in one run.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping

from tests.bench.processor import used_s
from tests.load import grpc_pushes
from tests.stack import Stack, journal_of, query

COUNT = 5_000
PAIRS = 5
AIM = 3.0

_STEPS = (
    'transform: map, with: { data: { n: "${data.n}", name: "${trim(data.name)}", '
    'email: "${lower(data.email)}", age: "${data.age}", tags: "${data.tags}" } }',
    "filter: 'data.age >= 18'",
    "route: { grown: 'data.age > 30', young: else }",
)
_TEXT = """pipo: 1
name: {name}
concurrency: 64
buffer: {{ max: 100000 }}
input: {{ via: push }}
nodes:
{nodes}
output: {{ from: {last}, to: sqlite, with: {{ path: ./{name}.db, table: t, create: true }} }}
"""


def pipelines() -> Mapping[str, str]:
    """The files of both by name: one map, and ten maps, filters and routes."""
    return {name: _text(name, count) for name, count in (("steps-1", 1), ("steps-10", 10))}


def report(stack: Stack) -> None:
    """One line, for a running stack that has the two pipelines."""
    pairs = [(_each(stack, "steps-1"), _each(stack, "steps-10")) for _ in range(1 + PAIRS)][1:]
    (one_us, one_ms), (ten_us, ten_ms) = (
        [statistics.median(pair[which][what] for pair in pairs) for what in (0, 1)]
        for which in (0, 1)
    )
    print(
        "ten pure steps in a row, accepted → delivered".ljust(56)
        + f" {1000.0 * ten_ms:9,.0f} µs  {ten_ms / one_ms:5.2f} × one step (aim < {AIM:.0f};"
        f" processor time {ten_us:,.0f} µs, {ten_us / one_us:.2f} × {one_us:,.0f} µs)"
    )


def _each(stack: Stack, name: str) -> tuple[float, float]:
    """A packet's processor time, µs, and its share of the time from the first to the last, ms."""
    pid = stack.pipeline_pid(name)
    assert pid is not None
    journal = journal_of(stack.home, name)
    [[seen]] = query(journal, "SELECT max(seq) FROM events")
    before = used_s(pid)
    asyncio.run(grpc_pushes.push(COUNT, port=stack.port + 1, pipeline=name))
    stack.settle(name, deadline_s=300)
    used_us = (used_s(pid) - before) / COUNT * 1_000_000.0
    [[first, last]] = query(
        journal,
        f"SELECT min(at), max(at) FROM events WHERE seq > {seen}"
        " AND type IN ('packet.accepted', 'packet.delivered')",
    )
    return used_us, (last - first) / COUNT


def _text(name: str, count: int) -> str:
    nodes, before = [], "input"
    for number in range(count):
        step = _STEPS[number % len(_STEPS)]
        nodes.append(f"  s{number}: {{ from: {before}, {step} }}")
        before = f"s{number}.grown" if step.startswith("route") else f"s{number}"
    return _TEXT.format(name=name, nodes="\n".join(nodes), last=before)
