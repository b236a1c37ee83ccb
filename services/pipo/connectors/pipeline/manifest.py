"""pipeline: hands packets from one pipeline to another, exactly once."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole, Role
from pipo.connectors.schema import NOTHING, PIPELINE_NAME, anything, closed, list_of, literal, text

MANIFEST = Manifest(
    name="pipeline",
    summary="Hands each packet to another pipeline, exactly once.",
    input=Role(
        {
            **closed(
                required=("from",),
                from_=list_of(
                    literal("A pipeline that may hand packets over.", pattern=PIPELINE_NAME),
                    "The pipelines that may hand packets over.",
                    minItems=1,
                    uniqueItems=True,
                ),
            ),
            "description": "Takes what other pipelines hand over, each packet once.",
        }
    ),
    output=OutputRole(
        closed(
            required=("pipeline",),
            pipeline=text("The receiving pipeline.", pattern=PIPELINE_NAME),
            data=anything("What is handed over; the packet's data unless set."),
        ),
        effect="write",
        checks=("downstream",),
        target=lambda settings: {"pipeline": settings["pipeline"]},
    ),
    checks={"downstream": Role({**NOTHING, "description": "The receiver has delivered it."})},
)
