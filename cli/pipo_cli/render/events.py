"""`pipo events` and the filter of `pipo logs --node` (edge 400)."""

from __future__ import annotations

import re

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.tables import one_line
from pipo_cli.render.times import stamp


def event_line(event: packet_pb2.Event) -> str:
    """`12  2026-10-10T21:13:48.263Z  node.done  01M4…  shape  {"ms":2}`; parts that are absent are left out."""
    detail = event.detail.decode(errors="replace") if event.HasField("detail") else ""
    parts = (str(event.seq), stamp(event.at), event.type, event.packet_id, event.node, detail)
    return "  ".join(one_line(part) for part in parts if part)


def mentions(node: str, line: str) -> bool:
    """Whether a log line names the node as a whole word: `x` is not in `x-2`."""
    return re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", line) is not None
