"""push: packets from the command line, the API and agents."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import NOTHING

MANIFEST = Manifest(
    name="push",
    summary="Takes what `pipo push` and the API hand over.",
    input=Role(NOTHING),
)
