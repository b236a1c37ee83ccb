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

from tests.bench import (
    chains,
    destinations,
    functions,
    ingest,
    language,
    many_pipelines,
    pure_steps,
    yardstick,
)
from tests.load import grpc_acks, grpc_pushes, http_posts
from tests.stack import Stack, journal_of, query, wait_for
from tests.system.test_pipeline_process import cpu_s

COUNT = 20_000
PARKED = 10_000
WATCHED_S = 10.0

LINE = 'line_contains, with: { value: "${meta.packet_id}" }, within: 60s'
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
    "push-batch": (
        "via: push",
        "sqlite, batch: { size: 100 }",
        "{ path: ./push-batch.db, table: t, create: true }",
        "ack",
    ),
    "lone": ("via: push", "file", "{ path: ./lone.jsonl }", "ack"),
    "line-empty": ("via: push", "file", "{ path: ./line-empty.jsonl }", LINE),
    "line-million": ("via: push", "file", "{ path: ./line-million.jsonl }", LINE),
    "parked": (
        "via: push",
        "sqlite",
        "{ path: ./parked.db, table: t, create: true }",
        "external, within: 1h",
    ),
    "idle": ("via: push", "sqlite", "{ path: ./idle.db, table: t, create: true }", "ack"),
}
TEXT = """pipo: 1
name: {name}
concurrency: 64
buffer: {{ max: 100000 }}
input: {{ {via} }}
output: {{ from: input, to: {to}, with: {settings} }}
delivered: {{ check: {check} }}
"""


def main() -> int:
    """Prints the report; 0."""
    language.report()
    functions.report()
    with tempfile.TemporaryDirectory(prefix="pipo-bench-") as scratch:
        folder = Path(scratch)
        rate = yardstick.commits_per_second(folder)
        print(f"yardstick: plain SQLite, WAL, FULL, one insert a commit  {rate:9,.0f} /s")
        destinations.report(folder, rate)
        stack = Stack(folder)
        for name, (via, to, settings, check) in PIPELINES.items():
            stack.write(
                f"{name}.pipo",
                TEXT.format(name=name, via=via, to=to, settings=settings, check=check),
            )
        for name, text in pure_steps.pipelines().items():
            stack.write(f"{name}.pipo", text)
        with (stack.workspace / "line-million.jsonl").open("w") as lines:
            lines.writelines(
                f'{{"packet_id":"{n:026d}","data":{{"n":{n}}}}}\n' for n in range(10**6)
            )
        stack.start()
        try:
            _idle(stack)
            _report(stack, "push-ack", "push stream → sqlite, ack", rate, _push)
            _report(stack, "push-seen", "push stream → sqlite, record_exists", rate, _push)
            _report(stack, "push-batch", "push stream → sqlite, batch: 100, ack", rate, _push)
            _report(stack, "line-empty", "push stream → jsonl, line_contains", rate, _push)
            _report(stack, "line-million", "the same, 1,000,000 lines before", rate, _push)
            _report(stack, "http-ack", "HTTP → sqlite, ack", rate, _post)
            ingest.report(stack, "http-ack", folder)
            pure_steps.report(stack)
            _lone(stack, folder)
            _parked(stack)
        finally:
            stack.stop()
        chains.report(folder / "chains")
        many_pipelines.report()
        again = yardstick.commits_per_second(folder, name="again")
        print(f"yardstick, once more at the end                          {again:9,.0f} /s")
    return 0


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
    commit_ms = yardstick.group_commit_ms(folder)
    append_ms = yardstick.lone_append_ms(folder)
    asyncio.run(grpc_pushes.lone(50, port=stack.port + 1, pipeline="lone"))
    stack.settle("lone")
    before = deliveries(stack, "lone")
    answers = asyncio.run(grpc_pushes.lone(200, port=stack.port + 1, pipeline="lone"))
    stack.settle("lone")
    count, seconds = (b - a for a, b in zip(before, deliveries(stack, "lone"), strict=True))
    to_answer = sorted(taken for _, taken in answers)[len(answers) // 2]
    whole, floor = 1000.0 * seconds / count, commit_ms + append_ms
    print(
        f"a lone packet → file, ack: accepted → delivered {whole:.2f} ms on average, "
        f"{whole / floor:.2f} × (lone group commit {commit_ms:.2f} ms + lone append "
        f"{append_ms:.2f} ms); push → answer {to_answer:.2f} ms"
    )


def deliveries(stack: Stack, name: str) -> tuple[float, float]:
    """How many packets a run delivered, and their seconds from accepted to delivered."""
    text = stack.request("/metrics", method="GET")[2].decode()
    found = {}
    for part in ("count", "sum"):
        prefix = f"pipo_delivery_duration_seconds_{part}{{"
        (line,) = (
            line
            for line in text.splitlines()
            if line.startswith(prefix) and f'pipeline="{name}"' in line
        )
        found[part] = float(line.rsplit(" ", 1)[1])
    return found["count"], found["sum"]


def _parked(stack: Stack) -> None:
    asyncio.run(grpc_pushes.push(PARKED, port=stack.port + 1, pipeline="parked"))

    def waiting() -> bool:
        return bool(stack.get("/api/pipelines/parked")["runner"]["awaiting_ack"] == PARKED)

    wait_for(waiting, deadline_s=300)
    used_s = cpu_s(stack.pipeline_pid("parked"), WATCHED_S)
    print(
        f"{PARKED:,} packets that wait for an ack, CPU            {100.0 * used_s / WATCHED_S:13.2f} %"
        f" of a core over {WATCHED_S:.0f} s"
    )
    ids = [row[0] for row in query(journal_of(stack.home, "parked"), "SELECT id FROM units")]
    seconds = asyncio.run(grpc_acks.ack(ids, port=stack.port + 1, pipeline="parked"))
    stack.settle("parked")
    print(f"acks of them, one call each, 64 at once                  {PARKED / seconds:9,.0f} /s")


def _idle(stack: Stack) -> None:
    pid = stack.pipeline_pid("idle")
    assert pid is not None
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    print(f"an idle pipeline process                                 {pss / 1024:9.1f} MB (PSS)")


if __name__ == "__main__":
    sys.exit(main())
