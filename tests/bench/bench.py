"""`make bench`: Pipo's rates beside what the disk can do, side by side in one run.

A report, not a test. Every rate is also a ratio to the yardstick (plain SQLite,
WAL, FULL, one insert per transaction), since the machine is shared and noisy.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import yardstick
from tests.load import grpc_pushes, http_posts
from tests.stack import Stack, journal_of, query

COUNT = 20_000

PIPELINES = {
    "push-ack": ("via: push", "sqlite", "{ path: ./push-ack.db, table: t, create: true }", "ack"),
    "push-seen": (
        "via: push",
        "sqlite",
        "{ path: ./push-seen.db, table: t, create: true }",
        'record_exists, with: { where: { packet_id: "${meta.key}" } }, within: 60s',
    ),
    "http-ack": (
        "via: http, with: { path: /in }",
        "sqlite",
        "{ path: ./http-ack.db, table: t, create: true }",
        "ack",
    ),
    "lone": ("via: push", "file", "{ path: ./lone.jsonl }", "ack"),
    "idle": ("via: push", "sqlite", "{ path: ./idle.db, table: t, create: true }", "ack"),
}
TEXT = """pipo: 1
name: {name}
concurrency: 64
input: {{ {via} }}
output: {{ from: input, to: {to}, with: {settings} }}
delivered: {{ check: {check} }}
"""
FLAT = """pipo: 1
name: {name}
concurrency: 64
buffer: {{ max: 100000 }}
input: {{ {via} }}
output: {{ from: input, to: {to}, with: {settings} }}
delivered: {{ check: {check} }}
"""


def main() -> int:
    """Prints the report; 0."""
    with tempfile.TemporaryDirectory(prefix="pipo-bench-") as scratch:
        folder = Path(scratch)
        rate = yardstick.commits_per_second(folder)
        print(f"yardstick: plain SQLite, WAL, FULL, one insert a commit  {rate:9,.0f} /s")
        stack = Stack(folder)
        for name, (via, to, settings, check) in PIPELINES.items():
            stack.write(
                f"{name}.pipo",
                FLAT.format(name=name, via=via, to=to, settings=settings, check=check),
            )
        stack.start()
        try:
            _idle(stack)
            _report(stack, "push-ack", "push stream → sqlite, ack", rate, _push)
            _report(stack, "push-seen", "push stream → sqlite, record_exists", rate, _push)
            _report(stack, "http-ack", "HTTP → sqlite, ack", rate, _post)
            _lone(stack, folder)
        finally:
            stack.stop()
        again = yardstick.commits_per_second(
            folder / "again" if _made(folder / "again") else folder
        )
        print(f"yardstick, once more at the end                          {again:9,.0f} /s")
    return 0


def _made(folder: Path) -> bool:
    folder.mkdir()
    return True


def _push(stack: Stack, name: str) -> float:
    return asyncio.run(grpc_pushes.push(COUNT, port=stack.port + 1, pipeline=name))


def _post(stack: Stack, name: str) -> float:
    outcome = asyncio.run(http_posts.post(COUNT, port=stack.port, path=f"/in/{name}/in"))
    assert outcome.statuses == {202: COUNT}, outcome
    return outcome.seconds


def _report(
    stack: Stack, name: str, title: str, yard: float, load: Callable[[Stack, str], float]
) -> None:
    answered_s = load(stack, name)
    stack.settle(name, deadline_s=300)
    journal = journal_of(stack.home, name)
    first, last = query(
        journal,
        "SELECT min(at), max(at) FROM events WHERE type IN ('packet.accepted', 'packet.delivered')",
    )[0]
    rate = COUNT / ((last - first) / 1000.0)
    p50, p99 = percentiles(journal)
    print(
        f"{title:<56} {rate:9,.0f} /s  {rate / yard:5.2f} × yardstick"
        f"   accepted → delivered p50 {p50} ms, p99 {p99} ms"
        f"   (answered at {COUNT / answered_s:,.0f} /s)"
    )


def percentiles(journal: Path) -> tuple[int, int]:
    """p50 and p99 from acceptance to delivered, milliseconds."""
    rows = query(
        journal,
        "SELECT settled_at - received_at FROM units WHERE state = 'delivered' ORDER BY 1",
    )
    waits = [row[0] for row in rows]
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def _lone(stack: Stack, folder: Path) -> None:
    commit_ms = yardstick.lone_commit_ms(folder)
    append_ms = yardstick.lone_append_ms(folder)
    asyncio.run(grpc_pushes.lone(50, port=stack.port + 1, pipeline="lone"))
    answers = asyncio.run(grpc_pushes.lone(200, port=stack.port + 1, pipeline="lone"))
    stack.settle("lone")
    to_answer = sorted(taken for _, taken in answers)[len(answers) // 2]
    taken = [
        row[0]
        for row in query(
            journal_of(stack.home, "lone"),
            "SELECT ms FROM events WHERE type = 'output.written' ORDER BY ms",
        )
    ]
    whole = median_delivery_ms(stack)
    floor = commit_ms + append_ms
    print(
        f"a lone packet → file, ack: accepted → delivered median {whole:.2f} ms, "
        f"{whole / floor:4.2f} × (lone commit {commit_ms:.2f} ms + lone append {append_ms:.2f} ms); "
        f"push → answer {to_answer:.2f} ms; write {taken[len(taken) // 2]:.2f} ms"
    )


def median_delivery_ms(stack: Stack) -> float:
    """Median of `pipo_delivery_duration_seconds` of the pipeline `lone`, by its histogram."""
    text = stack.request("/metrics", method="GET")[2].decode()
    buckets: list[tuple[float, int]] = []
    for line in text.splitlines():
        if line.startswith("pipo_delivery_duration_seconds_bucket") and 'pipeline="lone"' in line:
            bound = line.partition('le="')[2].partition('"')[0]
            if bound != "+Inf":
                buckets.append((float(bound), int(float(line.rsplit(" ", 1)[1]))))
    total = buckets[-1][1]
    below = (0.0, 0)
    for bound, count in buckets:
        if count >= total / 2:
            span = count - below[1]
            return 1000.0 * (below[0] + (bound - below[0]) * (total / 2 - below[1]) / max(span, 1))
        below = (bound, count)
    return 1000.0 * buckets[-1][0]


def _idle(stack: Stack) -> None:
    pid = stack.pipeline_pid("idle")
    assert pid is not None
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    print(f"an idle pipeline process                                 {pss / 1024:9.1f} MB (PSS)")


if __name__ == "__main__":
    sys.exit(main())
