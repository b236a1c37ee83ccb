"""Event lines, and which log lines name a node (edge 400)."""

import pytest

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.events import EventLines, mentions

AT = 1_791_666_828_263
STAMP = "2026-10-10T21:13:48.263Z"


def test_events_stand_in_columns_also_over_pages() -> None:
    started = packet_pb2.Event(seq=9, at=AT, type="pipeline.started")
    done = packet_pb2.Event(
        seq=12, at=AT, type="node.done", packet_id="01M4", node="shape", detail=b'{"ms":2}'
    )
    accepted = packet_pb2.Event(seq=13, at=AT, type="packet.accepted", packet_id="01M4")
    shown = EventLines()
    assert shown.of([started]) == [f"9  {STAMP}  pipeline.started"]
    assert shown.of([done, accepted]) == [
        f'12  {STAMP}  node.done         01M4  shape  {{"ms":2}}',
        f"13  {STAMP}  packet.accepted   01M4",
    ]
    bare = packet_pb2.Event(seq=14, at=AT, type="packet.accepted", packet_id="01M4", detail=b"{}")
    assert shown.of([bare]) == [f"14  {STAMP}  packet.accepted   01M4         {{}}"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("info  done node=x ms=2", True),
        ("x", True),
        ("node=x-2", False),
        ("node=my-x", False),
        ("node=x2", False),
        ("'x' failed", True),
    ],
)
def test_a_node_is_named_as_a_whole_word(line: str, named: bool) -> None:
    assert mentions("x", line) is named
