"""SIGKILL at every commit of a packet that splits: one copy fails, one is filtered, one is delivered.

All share a stack; each pipeline is killed once, at a point of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.traps import trap, trapped
from tests.packets import inspect
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

COVERED = frozenset(
    {
        "fanned_out.before_commit",
        "fanned_out.after_commit",
        "filtered.before_commit",
        "filtered.after_commit",
        "dead_lettered.before_commit",
        "dead_lettered.after_commit",
    }
)
# Points that other tests know too, and at which a split is another thing.
BESIDE = (
    "accepted.before_commit",
    "accepted.after_commit",
    "output.before_write",
    "output.after_write",
    "written.after_commit",
    "verdict.before_commit",
    "delivered.before_commit",
    "delivered.after_commit",
)
# A tap that writes a file is a step that reaches outside; so is the good copy's own.
STEP = ("step.before_effect", "step.after_effect", "step.after_commit")
SPLITS = {"input": "input", "node": "shape", "tap": "shape"}
TEXT = """pipo: 1
name: {name}
input: {{ via: http, with: {{ path: /in }} }}
nodes:
  {shape}good: {{ from: {source}, {good} }}
  none: {{ from: {source}, filter: "false" }}
  bad: {{ from: {source}, filter: "upper(data.n) == 'X'" }}
output:
  from: [good, none, bad]
  {to}
  within: 5m
"""
SHAPES = {
    "input": "",
    "node": 'shape: { from: input, transform: map, with: { data: { n: "${data.n}" } } }\n  ',
    "tap": "shape: { from: input, tap: file, with: { path: ./{name}.jsonl } }\n  ",
}
PASSES = 'filter: "true"'
TAPS = "tap: file, with: { path: ./{name}.jsonl }"
KINDS = {
    "sqlite": (
        "to: sqlite\n  with: { path: ./{name}.db, table: t, create: true }\n"
        'delivered:\n  check: record_exists\n  with: { where: { packet_id: "${meta.key}" } }'
    ),
    "file": (
        "to: file\n  with: { path: ./{name}.txt, format: text }\n"
        "delivered:\n  check: line_contains\n  with: { value: n }"
    ),
}
# Every packet that has split, with the number of its copies.
SPLIT_NOW = """
SELECT u.id, (SELECT count(*) FROM units AS c WHERE c.parent = u.id) AS copies FROM units AS u
WHERE u.root IS NULL AND (u.state = 'branched' OR copies > 0)
"""


NUMBERS = iter(range(1, 1000))
Case = tuple[str, str]
CASES = [
    (split, kind, point)
    for split in SPLITS
    for kind in KINDS
    for point in (*BESIDE, *STEP, *sorted(COVERED))
    # At the input a split is no commit of its own.
    if not (split == "input" and point.startswith("fanned_out"))
    if (point in STEP) <= (split == "tap")
]


def always(split: str, kind: str, point: str) -> bool:
    """Whether a case is tried in every run: each point meets both places and both kinds.

    Of the steps that reach outside one always runs: `test_outside_steps` has them alone.
    """
    if split == "tap":
        return (kind, point) == ("file", "step.after_commit")
    points = (*BESIDE, *sorted(COVERED))
    odd = list(SPLITS).index(split) + list(KINDS).index(kind) + points.index(point)
    return odd % 2 == 0


def product() -> Iterator[Any]:
    """Every point, with the cases that always run and with the others."""
    for point in (*BESIDE, *STEP, *sorted(COVERED)):
        for wanted, marks in ((True, []), (False, [pytest.mark.soak])):
            cases = [c[:2] for c in CASES if c[2] == point and always(*c) is wanted]
            if cases:
                yield pytest.param(point, cases, id=point, marks=marks)


def text_of(name: str, case: Case) -> str:
    split, kind = case
    text = TEXT.format(
        name="{name}",
        shape=SHAPES[split],
        source=SPLITS[split],
        good=TAPS if split == "tap" else PASSES,
        to=KINDS[kind],
    )
    return text.replace("{name}", name)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    yield from trapped(tmp_path_factory.mktemp("splits"), "backoff: 1s")


@pytest.mark.seed("O005", "O050", "O051", "R058")
@pytest.mark.parametrize(("point", "cases"), list(product()))
def test_a_split_packet_settles_once(stack: Stack, point: str, cases: Sequence[Case]) -> None:
    named = {f"s{next(NUMBERS)}": case for case in cases}
    traps = {name: trap(stack, name, point) for name in named}
    for name, case in named.items():
        path = stack.write(f"{name}.pipo", text_of(name, case))
        assert stack.pipo("start", str(path)).returncode == 0
    first = {name: stack.pipeline_pid(name) for name in named}
    for name in named:
        wait_for(partial(accepted, stack, name), what=stack.output)
    for name in named:
        wait_for(partial(is_gone, traps[name]), what="the trap springs")
        for _, copies in query(journal_of(stack.home, name), SPLIT_NOW):
            assert copies == 3
    for name, (_, kind) in named.items():
        wait_for(partial(is_another, stack, name, first[name]), what="a restart")
        settles_once(stack, name, kind)


def is_gone(path: Path) -> bool:
    return not path.exists()


def accepted(stack: Stack, name: str) -> bool:
    try:
        return stack.request(f"/in/{name}/in", b'{"n": 7}', timeout_s=30)[0] == 202
    except OSError:
        return False


def is_another(stack: Stack, name: str, first: int | None) -> bool:
    return stack.pipeline_pid(name) not in (None, first)


def settles_once(stack: Stack, name: str, kind: str) -> None:
    stats = stack.settle(name)
    assert stats["dead_lettered"] == stats["accepted"] > 0
    assert stats["delivered"] == 0
    found = stack.get(f"/api/pipelines/{name}/packets?limit=50")["packets"]
    ids = [one["packet_id"] for one in found]
    assert len(ids) == stats["accepted"]
    for id in ids:
        ends_right(inspect(stack, name, id), id)
    assert records(stack, name, kind) == sorted(ids)
    if (taps := stack.workspace / f"{name}.jsonl").exists():
        # A tap may run twice after a crash, and never not at all (R060).
        seen = Counter(one["packet_id"] for one in lines(taps))
        assert all(seen[id] >= 1 and seen[f"{id}:good"] >= 1 for id in ids), seen


def ends_right(trace: dict[str, Any], id: str) -> None:
    packet = trace["packet"]
    assert packet["state"] == "dead_lettered"
    assert packet["error"]["code"] == "branch.dead_lettered"
    assert packet["error"]["node"] == "bad"
    copies = {one["id"]: one for one in trace["copies"]}
    assert {name: one["state"] for name, one in copies.items()} == {
        f"{id}:good": "delivered",
        f"{id}:none": "filtered",
        f"{id}:bad": "dead_lettered",
    }, [one["events"][-1] for one in copies.values()]
    own = [event["type"] for event in trace["events"]]
    assert own.count("packet.fanned_out") == own.count("packet.dead_lettered") == 1
    assert own[-1] == "packet.dead_lettered"
    for one in copies.values():
        types = [event["type"] for event in one["events"]]
        assert types[0] == "packet.branched"
        assert sum(type_.removeprefix("packet.") == one["state"] for type_ in types) == 1


def records(stack: Stack, name: str, kind: str) -> list[str]:
    """The packets at the destination, each under the key of its one good copy."""
    if kind == "file":
        log = stack.workspace / f"{name}.txt.pipo-keys"
        text = (stack.workspace / f"{name}.txt").read_text()
        keys = [line for line in text.splitlines() if line]
        assert keys == ['{"n":7}'] * len(keys), (text, log)
        packets = stack.get(f"/api/pipelines/{name}/packets?limit=50")["packets"]
        assert len(keys) == len(packets)
        return sorted(one["packet_id"] for one in packets)
    rows = query(stack.workspace / f"{name}.db", "SELECT packet_id FROM t")
    assert all(key.endswith(":good") for (key,) in rows)
    return sorted(key.removesuffix(":good") for (key,) in rows)
