"""What this version knows and does not run is refused by its name."""

from __future__ import annotations

import pytest

from pipo.errors import InvalidState
from pipo_runner.pipeline.unbuilt import refuse_unbuilt
from tests.unit.runner.pipeline.rig import PLAIN, TABLE, pipeline_of

OUTPUT = f"output: {{ from: input, {TABLE} }}\n"


def test_what_is_built_passes() -> None:
    refuse_unbuilt(pipeline_of(PLAIN))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (f"{PLAIN}lifetime: {{ max_packets: 3 }}\n", "lifetime"),
        (f"{PLAIN}retention: {{ data: 1d }}\n", "retention"),
    ],
)
def test_what_is_not_built_is_named(body: str, name: str) -> None:
    with pytest.raises(InvalidState) as caught:
        refuse_unbuilt(pipeline_of(body))
    assert caught.value.message == f"people uses what is not built yet: {name}"


def test_everything_that_is_missing_is_named_at_once() -> None:
    body = f"{PLAIN}lifetime: {{ max_packets: 3 }}\nretention: {{ data: 1d }}\n"
    with pytest.raises(InvalidState, match="lifetime, retention"):
        refuse_unbuilt(pipeline_of(body))


def test_an_output_that_is_not_built_is_refused() -> None:
    body = (
        "input: { via: push }\noutput: { from: input, to: pipeline, with: { pipeline: other } }\n"
    )
    with pytest.raises(InvalidState, match="the output 'pipeline' is not built yet"):
        refuse_unbuilt(pipeline_of(body))
