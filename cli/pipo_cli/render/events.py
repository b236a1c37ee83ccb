"""`pipo events` and the filter of `pipo logs --node` (edge 400)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pipo.rpc.stubs import packet_pb2
from pipo_cli.render.tables import GAP, one_line, pad, width
from pipo_cli.render.times import stamp


class EventLines:
    """Events as lines in columns, page after page: a column never becomes narrower."""

    def __init__(self) -> None:
        self._widths = [0, 0, 0, 0, 0]

    def of(self, events: Iterable[packet_pb2.Event]) -> list[str]:
        """`12  2026-10-10T21:13:48.263Z  node.done  01M4…  shape  {"ms":2}`, one for each."""
        rows = [_parts(event) for event in events]
        for row in rows:
            self._widths = [max(a, width(b)) for a, b in zip(self._widths, row, strict=False)]
        return [self._line(row) for row in rows]

    def _line(self, row: Sequence[str]) -> str:
        *columns, detail = row
        cells = [pad(cell, size) for cell, size in zip(columns, self._widths, strict=True)]
        # A column that nothing was in yet takes no room.
        return GAP.join([*(cell for cell in cells if cell), detail]).rstrip()


def _parts(event: packet_pb2.Event) -> list[str]:
    detail = event.detail.decode(errors="replace") if event.HasField("detail") else ""
    parts = (str(event.seq), stamp(event.at), event.type, event.packet_id, event.node, detail)
    return [one_line(part) for part in parts]


def mentions(node: str, line: str) -> bool:
    """Whether a log line names the node as a whole word: `x` is not in `x-2`."""
    return re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", line) is not None
