"""log: one line in the pipeline's log per packet."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import choice, closed, text

MANIFEST = Manifest(
    name="log",
    summary="Writes one line to the pipeline's log.",
    tap=Role(
        closed(
            level=choice("How loud the line is.", "debug", "info", "warn", "error", default="info"),
            message=text("The line; `data` as JSON unless set."),
        )
    ),
)
