"""What this version knows and does not run is refused by its name."""

from __future__ import annotations

import pytest

from pipo.connectors import registry
from pipo.errors import InvalidState
from pipo_runner.pipeline.definition.unbuilt import refuse_unbuilt
from tests.unit.runner.pipeline.rig import PLAIN, TABLE, pipeline_of

OUTPUT = f"output: {{ from: input, {TABLE} }}\n"


def test_what_is_built_passes() -> None:
    refuse_unbuilt(pipeline_of(f"{PLAIN}lifetime: {{ ttl: 2h, max_packets: 3 }}\n"))


def test_what_is_not_built_is_named() -> None:
    settings = "{ model: m, prompt: p, schema: '${data.kind}.json' }"
    node = f"nodes: {{ think: {{ from: input, agent: claude_api, with: {settings} }} }}\n"
    with pytest.raises(InvalidState) as caught:
        refuse_unbuilt(pipeline_of(f"{PLAIN.replace('from: input', 'from: think')}{node}"))
    assert caught.value.message == "people uses what is not built yet: agent nodes"


def test_an_input_that_is_not_built_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_built", lambda kind, name: (kind, name) != ("input", "watch"))
    body = f"input: {{ via: watch, with: {{ path: ./in }} }}\n{OUTPUT}"
    with pytest.raises(InvalidState, match="the input 'watch' is not built yet"):
        refuse_unbuilt(pipeline_of(body))


def test_both_ends_of_a_chain_are_built() -> None:
    source = "input: { via: pipeline, with: { from: [first] } }\n"
    sink = "output: { from: input, to: pipeline, with: { pipeline: third } }\n"
    refuse_unbuilt(pipeline_of(f"{source}{sink}delivered: {{ check: downstream }}\n"))
