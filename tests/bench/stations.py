"""Where a packet's processor time goes: by process, and in each by the event loop and the rest.

Several pipelines take the same packets over HTTP, in one stack: one packet at a time, and from many
connections at once. Processor time is the kernel's own account of each thread, so that a busy
machine makes a run long and its figures hardly different.

    python -m tests.bench.stations [PACKETS]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.load import http_posts
from tests.stack import Stack, wait_for

PACKETS = 10_000
CONNECTIONS = 64
# So many of the packets are sent one at a time; with fewer, what looks on is a part of the cost.
LONE_SHARE = 20
LONE_MIN = 100
SERVICES = ("gateway", "checker")

_HEAD = "pipo: 1\nname: {name}\nconcurrency: 64\nbuffer: {{ max: 100000 }}\n"
_HTTP = "input: { via: http, with: { path: /in } }\n"
_TABLE = "with: {{ path: ./{name}.db, table: t, create: true }} }}\n"
_SEEN = (
    "delivered: {{ check: record_exists, within: 60s, "
    'with: {{ where: {{ packet_id: "${{meta.key}}" }} }} }}\n'
)
_TO_TABLE = "output: {{ from: input, to: sqlite, " + _TABLE
_BATCHED = "output: {{ from: input, to: sqlite, batch: {{ size: 100, within: 1s }}, " + _TABLE
# Pipelines by name: the text, and who else does a part of its work.
PIPELINES = {
    "ack": (_TO_TABLE, ()),
    "seen": (_TO_TABLE + _SEEN, ()),
    "batch": (_BATCHED, ()),
    "chain": (
        "output: {{ from: input, to: pipeline, with: {{ pipeline: receiver }} }}\n",
        ("receiver",),
    ),
}
_RECEIVER = (
    _HEAD.format(name="receiver")
    + "input: { via: pipeline, with: { from: [chain] } }\n"
    + _TO_TABLE.format(name="receiver")
)


@dataclass(frozen=True, slots=True)
class Used:
    """What threads have used so far: nanoseconds of the processor, and how often they slept."""

    ns: int
    sleeps: int


def report(count: int) -> None:
    """Lines for each pipeline, alone and under load; `count` packets under load."""
    with tempfile.TemporaryDirectory(prefix="pipo-bench-") as folder:
        stack = Stack(Path(folder))
        for name, (output, _) in PIPELINES.items():
            text = _HEAD.format(name=name) + _HTTP + output.format(name=name)
            stack.write(f"{name}.pipo", text)
        stack.write("receiver.pipo", _RECEIVER)
        stack.start()
        try:
            for name, (_, others) in PIPELINES.items():
                _run(stack, name, others, max(LONE_MIN, count // LONE_SHARE), 1)
                _run(stack, name, others, count, CONNECTIONS)
        finally:
            stack.stop()


def _run(stack: Stack, name: str, others: tuple[str, ...], count: int, connections: int) -> None:
    pids = {kind: stack.service_pid(kind) for kind in SERVICES}
    pids |= {each: stack.pipeline_pid(each) for each in (name, *others)}
    # The first requests open the ways between the processes.
    _post(stack, name, others, 2 * connections, connections)
    before, commits = _used(pids), _commits(stack, name)
    _post(stack, name, others, count, connections)
    after = _used(pids)
    spent = {
        place: Used(after[place].ns - used.ns, after[place].sleeps - used.sleeps)
        for place, used in before.items()
    }
    whole = sum(used.ns for used in spent.values()) / count / 1000.0
    shared = count / max(1, _commits(stack, name) - commits)
    print(
        f"{name}, {connections} at once".ljust(34)
        + f"{whole:8,.0f} µs a packet; {shared:.1f} packets a commit of the journal"
    )
    for (process, part), used in spent.items():
        us, sleeps = used.ns / count / 1000.0, used.sleeps / count
        print(f"  {process}, {part}".ljust(34) + f"{us:8,.0f} µs  {sleeps:6.2f} sleeps")


def _post(stack: Stack, name: str, others: tuple[str, ...], count: int, connections: int) -> None:
    path = f"/in/{name}/in"
    sent = asyncio.run(
        http_posts.post(
            count, port=stack.port, path=path, connections=connections, deadline_s=600.0
        )
    )
    assert sent.statuses == {202: count}, sent
    for each in (name, *others):
        stack.settle(each, deadline_s=300)


def _commits(stack: Stack, name: str) -> float:
    """How many transactions a journal has seen."""
    wanted = f'pipo_journal_group_size_count{{pipeline="{name}"}}'

    def told() -> float | None:
        text = stack.request("/metrics", method="GET")[2].decode()
        found = [line for line in text.splitlines() if line.startswith(wanted)]
        return float(found[0].rpartition(" ")[2]) if found else None

    return wait_for(told, what=f"{wanted} is told")


def _used(pids: dict[str, int | None]) -> dict[tuple[str, str], Used]:
    """By process and part: its first thread, which is the event loop, and all others."""
    ns: Counter[tuple[str, str]] = Counter()
    sleeps: Counter[tuple[str, str]] = Counter()
    for process, pid in pids.items():
        assert pid is not None, process
        for thread in Path(f"/proc/{pid}/task").iterdir():
            place = (process, "event loop" if int(thread.name) == pid else "other threads")
            status = (thread / "status").read_text()
            ns[place] += int((thread / "schedstat").read_text().split()[0])
            sleeps[place] += int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return {place: Used(ns[place], sleeps[place]) for place in ns}


if __name__ == "__main__":
    report(int(sys.argv[1]) if len(sys.argv) > 1 else PACKETS)
