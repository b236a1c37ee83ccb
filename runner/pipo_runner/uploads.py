"""Code comes from the operator: what a text that was sent may not use (decision 38)."""

from __future__ import annotations

from pipo.errors import Forbidden
from pipo.lang.model import Pipeline

KEY = "engine.allow_uploaded_code"


def refuse_code(pipeline: Pipeline) -> None:
    """Passes a pipeline that runs neither functions nor programs of its author.

    Raises: Forbidden, naming what it uses and the key that allows it.
    """
    used = [f"fn: {pipeline.fn}"] if pipeline.fn is not None else []
    used += [
        f"node {node.id!r} (exec)"
        for node in pipeline.nodes
        if node.kind in ("tap", "transform") and node.uses == "exec"
    ]
    if used:
        raise Forbidden(
            f"{', '.join(used)} of {pipeline.name} is code that was sent, and {KEY} is off",
            hint=f"start it from a file in the workspace, or set {KEY}: true in config.yaml",
        )
