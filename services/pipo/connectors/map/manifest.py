"""map: new data, spelled out."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import anything, closed

MANIFEST = Manifest(
    name="map",
    summary="Makes new data from a template.",
    transform=Role(
        closed(required=("data",), data=anything("What `data` becomes; templates at any depth."))
    ),
)
