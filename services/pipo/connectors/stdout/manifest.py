"""stdout: packets on the runner's standard output."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole
from pipo.connectors.schema import choice, closed

MANIFEST = Manifest(
    name="stdout",
    summary="Prints each packet to the runner's standard output.",
    output=OutputRole(
        closed(format=choice("What is printed.", "jsonl", "json", "text", default="jsonl")),
        effect="write",
        keyed=False,
    ),
)
