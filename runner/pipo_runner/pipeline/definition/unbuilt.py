"""What the language knows and this version of Pipo does not run yet, refused by its name."""

from __future__ import annotations

from pipo.connectors import registry as connectors
from pipo.connectors.contract import UNIVERSAL_CHECKS
from pipo.errors import InvalidState
from pipo.lang.model import Pipeline
from pipo.lang.rules.names import FUNCTION


def refuse_unbuilt(pipeline: Pipeline) -> None:
    """Refuses what the language knows and this build does not run, each by its name."""
    for entry in pipeline.inputs:
        connectors.require_built("input", entry.via, entry.settings)
    missing = [name for name, used in later(pipeline) if used]
    if missing:
        raise InvalidState(
            f"{pipeline.name} uses what is not built yet: {', '.join(missing)}",
            hint="take it out of the file, or wait for the version that brings it",
        )
    for node in pipeline.nodes:
        if node.kind in ("tap", "transform") and not FUNCTION.fullmatch(node.uses):
            connectors.require_built(node.kind, node.uses, node.settings)
    connectors.require_built("output", pipeline.output.to, pipeline.output.settings)
    if pipeline.delivered.check not in UNIVERSAL_CHECKS:
        # Only looked for: what a checker imports has no place in this process (design §5).
        connectors.require_there("checks", pipeline.output.to)


def later(pipeline: Pipeline) -> list[tuple[str, bool]]:
    """Each name of what this build does not run, and whether the pipeline uses it."""
    kinds = {node.kind for node in pipeline.nodes}
    return [
        ("agent nodes", "agent" in kinds),
    ]
