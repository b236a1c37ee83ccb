"""emit: an event of the author's own in the packet's trail."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import anything, closed, text

MANIFEST = Manifest(
    name="emit",
    summary="Adds an event of your own to the packet's trail and the event stream.",
    tap=Role(
        closed(
            required=("event",),
            event=text("The event's type."),
            detail=anything("What the event carries."),
        )
    ),
)
