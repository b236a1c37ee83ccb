"""Units that split: copies, their order, their ends, and the end of their packet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import Refused, RefusedArrival, Settlement, WriteFailed
from pipo.journal.changes import (
    Accepted,
    DeadLettered,
    Delivered,
    FannedOut,
    Filtered,
    PacketError,
    Stepped,
)
from pipo.journal.recover import PendingUnit, Recovery
from pipo.journal.sheet import Copies
from pipo.journal.states import Code
from pipo.payload import decode
from pipo_runner.pipeline.resuming import take_up
from tests.unit.runner.pipeline.rig import TABLE, Rig, pending

# `a` and `b` take from the input, and so does the output itself; `b` splits again.
FORKED = f"""
input: {{ via: push }}
nodes:
  a: {{ from: input, filter: "data.n > 1" }}
  b: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n * 10}}" }} }} }}
  c: {{ from: b, filter: "data.n != 50" }}
  d: {{ from: [a, b], transform: map, with: {{ data: {{ n: "${{data.n}}", of: "${{meta}}" }} }} }}
output: {{ from: [input, c, d], {TABLE} }}
"""
ROUTED = f"""
input: {{ via: push }}
nodes:
  r:
    from: input
    route: {{ odd: "data.n % 2 == 1", four: "data.n == 4", bad: "upper(data.n) == 'X'" }}
  note: {{ from: r.odd, tap: log, with: {{ message: "odd" }} }}
output: {{ from: [r.odd, note, r.four], {TABLE} }}
"""


async def test_an_input_splits_in_the_commit_that_accepts() -> None:
    rig = Rig(FORKED)
    (packet,) = await rig.accept({"n": 5})
    (accepted,) = rig.journal.of(Accepted)
    assert [(c.branch, c.cursor, c.queue_seq) for c in accepted.copies] == [
        ("a", "a", 1), ("b", "b", 1), ("output", "$output", 1),
    ]  # fmt: skip
    assert rig.journal.durable == [accepted]
    await rig.settle()
    assert sorted(rig.output.written) == [
        f"{packet}:a", f"{packet}:b/d", f"{packet}:output",
    ]  # fmt: skip
    assert len(rig.parts.pending) == 0


async def test_a_node_splits_in_the_commit_of_its_step() -> None:
    rig = Rig(FORKED)
    (packet,) = await rig.accept({"n": 7})
    steps = [
        change
        for handed in rig.journal.waiting
        for change in handed.changes
        if getattr(change, "unit", "") == f"{packet}:b"
    ]
    stepped, split = steps
    assert isinstance(stepped, Stepped)
    assert isinstance(split, FannedOut)
    assert (stepped.node, stepped.cursor, split.node) == ("b", "b", "b")
    assert [c.branch for c in split.copies] == ["b/c", "b/d"]
    assert decode(split.data) == {"n": 70}
    (handed,) = [one for one in rig.journal.waiting if split in one.changes]
    assert stepped in handed.changes


async def test_a_copy_says_which_it_is() -> None:
    rig = Rig(FORKED)
    (packet,) = await rig.accept({"n": 7})
    await rig.settle()
    written = {unit.id: unit for group in rig.output.writes for unit in group}
    meta = written[f"{packet}:b/d"].data["of"]
    assert meta["packet_id"] == packet
    assert meta["branch"] == "b/d"
    assert meta["key"] == f"{packet}:b/d"
    assert meta["hops"] == 1
    assert written[f"{packet}:a"].data["of"]["branch"] == "a"
    assert written[f"{packet}:b/d"].key == f"{packet}:b/d"


async def test_what_comes_of_a_split_is_journaled_behind_it() -> None:
    rig = Rig(FORKED)
    await rig.accept({"n": 1}, {"n": 2}, {"n": 5})
    await rig.settle()
    born = {copy_of(change, copy.branch): n for n, change in enumerate(rig.journal.durable)
            if isinstance(change, (Accepted, FannedOut)) for copy in change.copies}  # fmt: skip
    for n, change in enumerate(rig.journal.durable):
        unit = getattr(change, "unit", "")
        if ":" in unit:
            assert born[unit] < n, change


def copy_of(change: Accepted | FannedOut, branch: str) -> str:
    return f"{change.unit.partition(':')[0]}:{branch}"


@pytest.mark.parametrize(
    ("n", "writes"), [(3, ["note", "output"]), (4, [""])], ids=["two-takers", "one-taker"]
)
async def test_a_branch_splits_only_with_several_takers(n: int, writes: list[str]) -> None:
    """Edge 121."""
    rig = Rig(ROUTED)
    (packet,) = await rig.accept({"n": n})
    await rig.settle()
    assert rig.output.written == [f"{packet}:{w}" if w else packet for w in writes]


async def test_a_route_whose_condition_fails_is_not_tried_again() -> None:
    """Edge 100."""
    rig = Rig(ROUTED.replace("from: input\n", "from: input\n    on_error: { retry: 3 }\n"))
    (packet,) = await rig.accept({"n": 8})
    await rig.settle()
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.unit, dead.node, dead.error.attempts) == (packet, "r", 1)


@pytest.mark.parametrize("concurrency", [1, 2, 7])
async def test_copies_go_before_what_came_after_their_packet(concurrency: int) -> None:
    rig = Rig(f"concurrency: {concurrency}\n{FORKED}")
    first, second = await rig.accept({"n": 7}, {"n": 8})
    await rig.settle()
    if concurrency == 1:
        wanted = [f"{p}:{b}" for p in (first, second) for b in ("a", "b/c", "b/d", "output")]
        assert rig.output.written == wanted
    assert rig.parts.executor.in_hand == 0
    assert len(rig.parts.pending) == 0


async def test_a_full_buffer_counts_packets_and_not_copies() -> None:
    rig = Rig(f"buffer: {{ max: 2 }}\n{FORKED}")
    rig.output.hold()
    assert len(await rig.accept({"n": 7}, {"n": 8})) == 2
    (refused,) = await rig.parts.intake.take([rig.arrival({"n": 9})])
    assert isinstance(refused, RefusedArrival)
    rig.output.let_go()
    await rig.settle()
    assert len(await rig.accept({"n": 9})) == 1


class Answers:
    """What becomes of each copy: by its branch, and `good` for the rest."""

    def __init__(self, **failures: str) -> None:
        self._failures = failures

    def __call__(self, unit: object) -> object:
        branch = unit.id.partition(":")[2].replace("/", "_")  # type: ignore[attr-defined]
        message = self._failures.get(branch)
        return {"rowid": 1} if message is None else Refused(message)


@pytest.mark.parametrize(
    ("n", "failures", "ends"),
    [
        (7, {}, Settlement("delivered")),
        (7, {"a": "no ink"}, Settlement("dead_lettered", "copy a failed: no ink")),
        (7, {"b_d": "no ink"}, Settlement("dead_lettered", "copy b/d failed: no ink")),
        (5, {"b_d": "no ink"}, Settlement("dead_lettered", "copy b/d failed: no ink")),
        (1, {}, Settlement("delivered")),
    ],
    ids=["all", "one-dead", "a-copy-of-a-copy-dead", "beside-a-filtered-one", "one-filtered"],
)
async def test_the_last_copy_settles_the_packet(
    n: int, failures: dict[str, str], ends: Settlement
) -> None:
    """Edge 114, 115: what is told is what the journal makes of it."""
    rig = Rig(FORKED)
    told: list[tuple[str, Settlement]] = []
    before = rig.parts.pending.on_settled

    def hear(ended, settlement):  # type: ignore[no-untyped-def]
        told.extend((one.id, settlement) for one in ended)
        before(ended, settlement)

    rig.parts.pending.on_settled = hear
    rig.output.answer = Answers(**failures)  # type: ignore[assignment]
    (packet,) = await rig.accept({"n": n})
    wait = asyncio.ensure_future(rig.parts.pending.wait(packet, 5.0))
    await rig.settle()
    assert told == [(packet, ends)]
    assert await wait == ends
    assert rig.parts.executor.in_hand == 0


async def test_all_filtered_is_filtered() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  a: {{ from: input, filter: "data.n > 1" }}
  b: {{ from: input, filter: "data.n > 2" }}
output: {{ from: [a, b], {TABLE} }}
"""
    rig = Rig(body)
    (packet,) = await rig.accept({"n": 1})
    wait = asyncio.ensure_future(rig.parts.pending.wait(packet, 5.0))
    await rig.settle()
    assert await wait == Settlement("filtered")
    assert [change.unit for change in rig.journal.of(Filtered)] == [f"{packet}:a", f"{packet}:b"]
    assert rig.journal.of(Delivered) == []


async def test_a_copy_that_waits_keeps_its_packet_open() -> None:
    rig = Rig(FORKED.replace("to: sqlite", "on_error: { retry: 1, delay: 5s }, to: sqlite"))
    fails = [WriteFailed("busy")]
    rig.output.answer = lambda unit: (
        fails.pop() if fails and unit.id.endswith(":a") else {"rowid": 1}
    )
    (packet,) = await rig.accept({"n": 7})
    await rig.settle()
    assert len(rig.parts.pending) == 1
    assert rig.parts.pending.find(packet) is None
    assert rig.parts.pending.moving == 1
    await rig.timers.elapse(5.0)
    await rig.settle()
    assert len(rig.parts.pending) == 0
    assert rig.parts.pending.moving == 0


# ── after a restart ──────────────────────────────────────────────────────────


def copy(branch: str, **given: Any) -> PendingUnit:
    return pending(1, id=f"u1:{branch}", root="u1", branch=branch, state="processing", **given)


def left(*units: PendingUnit) -> Recovery:
    return Recovery(units=list(units), next_queue_seq=9, marks={}, version=1)


async def taken_up(body: str, *units: PendingUnit) -> tuple[Rig, dict[str, int]]:
    rig = Rig(body, auto=True, recovery=left(*units))
    rows = await take_up(units, rig.around, rig.parts)
    return rig, dict(rows)


def dead(message: str, code: Code = "node.failed") -> str:
    return PacketError(code, message, None, "b", 1).json()


@pytest.mark.parametrize(
    ("copies", "ends"),
    [
        (Copies(1), Settlement("filtered")),
        (Copies(1, delivered=1), Settlement("delivered")),
        (
            Copies(1, delivered=1, dead=(("u1:b", dead("no ink")), ("u1:c", dead("x")))),
            Settlement("dead_lettered", "copy b failed: no ink"),
        ),
        (
            Copies(1, dead=(("u1:b", dead("copy b/c failed: x", "branch.dead_lettered")),)),
            Settlement("dead_lettered", "copy b/c failed: x"),
        ),
    ],
    ids=["none-had-ended", "one-delivered", "two-dead", "a-dead-one-that-had-split"],
)
async def test_copies_that_ended_in_an_earlier_run_count(copies: Copies, ends: Settlement) -> None:
    packet = pending(1, state="branched", cursor="", data=None, copies=copies)
    rig, rows = await taken_up(FORKED, packet, copy("a", cursor="a", data=b'{"n":1}'))
    assert rows == {"R9": 1, "R1": 1}
    assert len(rig.parts.pending) == 1
    wait = asyncio.ensure_future(rig.parts.pending.wait("u1", 5.0))
    await rig.settle()
    assert await wait == ends
    assert len(rig.parts.pending) == 0


async def test_a_split_that_was_forgotten_is_made_again_with_care() -> None:
    """A copy may have been written before the crash: its key is looked for."""
    rig, rows = await taken_up(FORKED, pending(1, id="u1", cursor="b", data=b'{"n":7}'))
    assert rows == {"R1": 1}
    await rig.settle()
    assert sorted(rig.output.written) == ["u1:c", "u1:d"]
    assert {unit.repeat for group in rig.output.writes for unit in group} == {"recovered"}


async def test_packets_and_not_copies_fill_the_buffer_after_a_restart() -> None:
    packet = pending(1, state="branched", cursor="", data=None, copies=Copies(2))
    open_ = [copy(branch, cursor="$output") for branch in ("a", "output")]
    rig = Rig(f"buffer: {{ max: 2 }}\n{FORKED}", opened=False, recovery=left(packet, *open_))
    await take_up([packet, *open_], rig.around, rig.parts)
    rig.parts.admission.open()
    assert len(await rig.accept({"n": 9})) == 1
    assert rig.parts.pending.moving == 2 + 3
