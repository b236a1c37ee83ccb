"""Fan-out, routes and fan-in through a real stack (outputs: the block, idempotency keys)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.receiver import Receiver
from tests.stack import Stack, query

pytestmark = pytest.mark.slow


def table(name: str, more: str = "") -> str:
    return f"  to: sqlite\n  with: {{ path: ./data/{name}.db, table: t, create: true{more} }}\n"


LOOKED_UP = 'delivered:\n  check: record_exists\n  with: { where: { packet_id: "${meta.key}" } }\n'
# Both `a` and the output take from the input, `c` and `d` from `a`.
NESTED = (
    "input: { via: push }\n"
    "nodes:\n"
    '  a: { from: input, transform: map, with: { data: { n: "${data.n}" } } }\n'
    '  c: { from: a, transform: map, with: { data: { n: "${data.n + 100}" } } }\n'
    '  d: { from: a, filter: "data.n < 50" }\n'
    "output:\n  from: [input, c, d]\n"
)
TRIAGE = 'triage: { from: input, route: { urgent: "data.n > 9", normal: else } }'
KEYS = (
    'with: { data: { n: "${data.n}", earlier: "${meta.key}", of: "${meta.packet_id}", '
    'branch: "${meta.branch}" } }'
)
EXPLICIT = (
    ", key: k, columns: { k: '${data.of}/${meta.branch}', earlier: '${data.earlier}', "
    "branch: '${data.branch}', key: '${meta.key}' }"
)
PIPELINES = {
    "from-input": f"input: {{ via: push }}\noutput:\n  from: input\n{table('from-input')}",
    "from-node": (
        'input: { via: push }\nnodes: { n: { from: input, filter: "true" } }\n'
        f"output:\n  from: n\n{table('from-node')}"
    ),
    "from-branch": (
        f"input: {{ via: push }}\nnodes: {{ {TRIAGE} }}\n"
        f"output:\n  from: triage.normal\n{table('from-branch')}"
    ),
    "from-list": (
        "inputs: { one: { via: push }, two: { via: push } }\n"
        f"nodes: {{ {TRIAGE.replace('input', 'one')} }}\n"
        f"output:\n  from: [two, triage.urgent, triage.normal]\n{table('from-list')}"
    ),
    "nested": NESTED + table("nested") + LOOKED_UP,
    "explicit": (
        "input: { via: push }\nnodes:\n"
        f"  a: {{ from: input, transform: map, {KEYS} }}\n"
        f"  b: {{ from: input, transform: map, {KEYS} }}\n"
        f"output:\n  from: [a, b]\n{table('explicit', EXPLICIT)}"
        'delivered: { check: record_exists, with: { where: { k: "${meta.key}" } } }\n'
    ),
    "mixed": (
        "input: { via: push }\nnodes:\n"
        '  good: { from: input, filter: "true" }\n'
        '  none: { from: input, filter: "false" }\n'
        '  bad: { from: input, filter: "upper(data.n)" }\n'
        f"output:\n  from: [good, none, bad]\n{table('mixed')}"
    ),
    "http": NESTED + '  to: http\n  with: { url: "${env.STUB}/forked" }\n',
    "batched": (
        "inputs: { input: { via: push } }\n"
        + NESTED.partition("\n")[2]
        + "  batch: { size: 3, within: 10s }\n"
        + table("batched")
    ),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("splits"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def rows(
    stack: Stack, name: str, sql: str = "SELECT packet_id, n FROM t ORDER BY packet_id"
) -> Any:
    return query(stack.workspace / f"data/{name}.db", sql)


@pytest.mark.seed("O010")
@pytest.mark.parametrize("name", ["from-input", "from-node", "from-branch"])
def test_every_form_of_from_leads_to_the_output(stack: Stack, name: str) -> None:
    made = outcome(stack, name, {"n": 1})
    assert made["state"] == "delivered"
    assert rows(stack, name) == [[made["packet_id"], 1]]


@pytest.mark.seed("O010")
def test_a_branch_that_nobody_takes_filters(stack: Stack) -> None:
    made = outcome(stack, "from-branch", {"n": 10})
    assert made["state"] == "filtered"
    types = [e["type"] for e in inspect(stack, "from-branch", made["packet_id"])["events"]]
    assert types == ["packet.accepted", "packet.filtered"]


@pytest.mark.seed("O010", "O011")
def test_every_source_of_a_list_is_written_the_same_way(stack: Stack) -> None:
    """Two inputs and both branches of a route: rows with the same columns, each under its id."""
    ids = [
        push(stack, "from-list", {"n": 1}, input="one"),
        push(stack, "from-list", {"n": 10}, input="one"),
        push(stack, "from-list", {"n": 2}, input="two"),
    ]
    assert {settled(stack, "from-list", id)["state"] for id in ids} == {"delivered"}
    assert rows(stack, "from-list") == [[id, n] for id, n in zip(ids, (1, 10, 2), strict=True)]
    columns = rows(stack, "from-list", "SELECT name FROM pragma_table_info('t') ORDER BY name")
    assert columns == [["n"], ["packet_id"]]


@pytest.mark.seed("O050", "O051", "O053")
def test_each_copy_makes_its_own_record_under_its_way(stack: Stack) -> None:
    made = outcome(stack, "nested", {"n": 1})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    assert rows(stack, "nested") == [[f"{id}:a/c", 101], [f"{id}:a/d", 1], [f"{id}:output", 1]]
    trace = inspect(stack, "nested", id)
    copies = {copy["id"]: copy["state"] for copy in trace["copies"]}
    assert copies == {
        f"{id}:a": "delivered",
        f"{id}:a/c": "delivered",
        f"{id}:a/d": "delivered",
        f"{id}:output": "delivered",
    }
    assert [e["type"] for e in trace["events"]] == [
        "packet.accepted",
        "packet.fanned_out",
        "packet.delivered",
    ]


@pytest.mark.seed("O051")
def test_copies_of_a_batch_are_members_of_their_own(stack: Stack) -> None:
    made = outcome(stack, "batched", {"n": 1})
    id = made["packet_id"]
    assert rows(stack, "batched") == [[f"{id}:a/c", 101], [f"{id}:a/d", 1], [f"{id}:output", 1]]


@pytest.mark.seed("O052", "O050")
def test_an_explicit_key_is_each_copys_own(stack: Stack) -> None:
    """Earlier nodes see `packet_id:<branch>`, the output and the check the explicit key."""
    made = outcome(stack, "explicit", {"n": 1})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    assert rows(stack, "explicit", "SELECT * FROM t ORDER BY k") == [
        [f"{id}/{b}", f"{id}:{b}", b, f"{id}/{b}"] for b in ("a", "b")
    ]


def test_the_packet_ends_as_its_copies_say(stack: Stack) -> None:
    """Edge 114, 115: one delivered, one filtered, one dead."""
    made = outcome(stack, "mixed", {"n": 1})
    id = made["packet_id"]
    assert made["state"] == "dead_lettered"
    assert made["error"]["code"] == "branch.dead_lettered"
    assert made["error"]["node"] == "bad"
    assert made["error"]["message"].startswith("copy bad failed: ")
    assert rows(stack, "mixed") == [[f"{id}:good", 1]]
    stats = stack.stats("mixed")
    assert (stats["accepted"], stats["dead_lettered"], stats["delivered"]) == (1, 1, 0)


@pytest.mark.seed("O035", "O050")
def test_each_copys_request_has_its_key(stack: Stack, receiver: Receiver) -> None:
    made = outcome(stack, "http", {"n": 1})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    assert sorted(got.key for got in receiver.got if got.path == "/forked") == [
        f"{id}:a/c",
        f"{id}:a/d",
        f"{id}:output",
    ]
