"""watch: a packet for each file that appears, changes or goes."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import choice, choices, closed, path

MANIFEST = Manifest(
    name="watch",
    summary="Makes a packet for each file that appears, changes or goes.",
    input=Role(
        closed(
            required=("path",),
            path=path("A glob; a plain folder means every file below it."),
            events=choices(
                "What makes a packet.", "create", "change", "delete", default=["create", "change"]
            ),
            read=choice(
                "Whether the packet carries the file's content.", "content", "path", default="path"
            ),
        )
    ),
)
