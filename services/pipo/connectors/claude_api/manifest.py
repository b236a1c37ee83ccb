"""claude_api: an answer from the Messages API."""

from __future__ import annotations

from pipo.connectors.agent_schema import answer
from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import closed, integer, text

MANIFEST = Manifest(
    name="claude_api",
    summary="Asks a model through the Messages API.",
    agent=Role(
        closed(
            required=("model", "prompt", "schema"),
            model=text("The model."),
            max_tokens=integer("The longest answer, in tokens.", default=4096, minimum=1),
            **answer("60s"),
        ),
        effect="spend",
    ),
)
