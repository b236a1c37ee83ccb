"""Event lines, and which log lines name a node (edge 400)."""

import pytest

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.events import event_line, mentions


def test_an_event_leaves_out_what_is_absent() -> None:
    at = 1_791_666_828_263
    whole = packet_pb2.Event(
        seq=12, at=at, type="node.done", packet_id="01M4", node="shape", detail=b'{"ms":2}'
    )
    bare = packet_pb2.Event(seq=1, at=at, type="pipeline.started")
    assert event_line(whole) == '12  2026-10-10T21:13:48.263Z  node.done  01M4  shape  {"ms":2}'
    assert event_line(bare) == "1  2026-10-10T21:13:48.263Z  pipeline.started"


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
