"""A rerun's plan as text (R032-R034)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors import registry
from pipo.rpc.stubs import pipo_pb2
from pipo_cli.render.reruns import rerun

FIRST, SECOND = "01M4KT8AP4M6Y3HYQHJER88KKD", "01M4KT85SWN3EJGZAYEF3JWBQQ"


def packet(id: str, *branches: str) -> pipo_pb2.RerunPacket:
    ids = [f"{id}:{branch}" for branch in branches] or [id]
    units = [pipo_pb2.ReplayedUnit(id=one, node="stamp") for one in ids]
    return pipo_pb2.RerunPacket(packet_id=id, version=1, units=units)


FROM: dict[str, Any] = {"from": "stamp"}
PATH = [
    pipo_pb2.RerunStep(step="stamp", kind="transform: map"),
    pipo_pb2.RerunStep(step="output", kind="output: file", effect="write"),
]


@pytest.mark.seed("R032")
def test_the_plan_of_the_seed() -> None:
    reply = pipo_pb2.RerunReply(
        dry=True, rerun=2, packets=[packet(FIRST), packet(SECOND)], path=PATH, **FROM
    )
    assert rerun("heartbeat", reply) == [
        "plan: rerun 2 packet(s) of heartbeat from 'stamp', each on its own version",
        "  01M4KT8AP4M6Y3HYQHJER88KKD",
        "  01M4KT85SWN3EJGZAYEF3JWBQQ",
        "steps that run again:",
        "  STEP    KIND            EFFECT",
        "  stamp   transform: map",
        "  output  output: file    writes again (idempotent on its key)",
        "nothing ran yet: run it with --yes",
    ]


@pytest.mark.seed("R033")
def test_what_matters_of_each_step() -> None:
    steps = [("ask", "agent: claude_api", "spend"), ("call", "transform: http", "external")]
    path = [
        pipo_pb2.RerunStep(step=step, kind=kind, effect=effect)
        for step, kind, effect in [*steps, ("note", "tap: file", "write")]
    ]
    lines = rerun("x", pipo_pb2.RerunReply(dry=True, rerun=1, packets=[packet(FIRST)], path=path))
    assert lines[4:7] == [
        "  ask   agent: claude_api  spends again (spend)",
        "  call  transform: http    reaches outside again (external)",
        "  note  tap: file          writes again (write)",
    ]


@pytest.mark.seed("O043", "O047")
@pytest.mark.parametrize(
    "to", sorted(name for name, made in registry.manifests().items() if made.output is not None)
)
def test_only_an_output_with_a_key_is_idempotent(to: str) -> None:
    step = pipo_pb2.RerunStep(step="output", kind=f"output: {to}", effect="write")
    shown = rerun("x", pipo_pb2.RerunReply(dry=True, rerun=1, packets=[packet(FIRST)], path=[step]))
    what = "not idempotent" if to in ("stdout", "telegram") else "idempotent on its key"
    assert shown[4] == f"  output  output: {to}  writes again ({what})"


def test_what_runs_and_what_was_left() -> None:
    reply = pipo_pb2.RerunReply(
        rerun=102,
        packets=[packet(FIRST, "a", "b/c")],
        skipped=[pipo_pb2.SkippedPacket(packet_id=SECOND, reason="it never reached 'stamp'")],
        skipped_count=3,
        path=PATH,
        current=2,
        **FROM,
    )
    lines = rerun("heartbeat", reply)
    assert lines[:6] == [
        "rerunning 102 packet(s) of heartbeat from 'stamp', on v2",
        f"  {FIRST}  (a, b/c)",
        "  and 101 more",
        "skipped:",
        f"  {SECOND}  it never reached 'stamp'",
        "  and 2 more",
    ]
    assert lines[-1] == "follow them with pipo packets heartbeat or pipo inspect heartbeat <id>"


def test_nothing_to_rerun() -> None:
    reply = pipo_pb2.RerunReply(dry=True, **FROM)
    assert rerun("heartbeat", reply) == [
        "plan: rerun 0 packet(s) of heartbeat from 'stamp', each on its own version"
    ]
