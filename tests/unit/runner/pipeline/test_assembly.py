"""The parts put together: inputs by their kind, places that come back, numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipo.connectors import registry as connectors
from pipo.connectors.contract import Input, InputContext, InputSpec
from pipo_runner.pipeline.assembly import build_inputs
from tests.unit.runner.pipeline.rig import FOLDER, TABLE, Rig

INPUTS = f"""
inputs:
  one: {{ via: http, with: {{ path: /one }}, on_invalid: {{ respond: 409 }} }}
  rows: {{ via: http, with: {{ path: /rows }}, format: csv }}
  pushed: {{ via: push }}
output: {{ from: [one, rows, pushed], {TABLE} }}
"""


class Made:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: dict[str, list[InputSpec]] = {}
        monkeypatch.setattr(connectors, "build_inputs", self._build)

    def _build(self, via: str, specs: Sequence[InputSpec], context: InputContext) -> Input:
        self.specs[via] = list(specs)
        return NoInput()


class NoInput:
    async def open(self) -> None:
        """Nothing listens."""

    async def close(self) -> None:
        """Nothing to close."""


def build(rig: Rig) -> list[Input]:
    base = rig.around.context
    context = InputContext(
        pipeline=base.pipeline,
        folder=base.folder,
        clock=base.clock,
        log=base.log,
        intake=rig.parts.intake,
    )
    return build_inputs(rig.pipeline, rig.around, context)


def test_inputs_of_one_kind_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    assert len(build(Rig(INPUTS))) == 2
    assert [spec.name for spec in made.specs["http"]] == ["one", "rows"]
    one, rows = made.specs["http"]
    assert (one.settings["path"], one.format, one.respond_status) == ("/one", "json", 409)
    assert (rows.format, rows.respond_status) == ("csv", 422)


def test_an_inputs_settings_see_env_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    body = (
        INPUTS.replace(
            "with: { path: /one }",
            'with: { path: /one, auth: { header: X-Token, equals: "${secrets.token}" } }',
        )
        + "secrets: { token: env:TOKEN }\n"
    )
    build(Rig(body, secrets={"token": "s3cr3t-value"}))
    assert made.specs["http"][0].settings["auth"]["equals"] == "s3cr3t-value"


async def test_every_end_gives_its_place_in_the_buffer_back() -> None:
    body = f"""
input: {{ via: push }}
nodes: {{ some: {{ from: input, filter: "data.n > 1" }} }}
output: {{ from: some, {TABLE}, validate: ["data.n < 9"] }}
buffer: {{ max: 1 }}
"""
    rig = Rig(body, auto=True)
    for data in ({"n": 1}, {"n": 5}, {"n": 9}, {"n": "x"}, {"n": 5}):
        assert len(await rig.accept(data)) == 1
        await rig.settle()
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)
    assert rig.parts.statistics.message().in_per_min == 5


def test_paths_are_relative_to_the_pipelines_file() -> None:
    settings = Rig().plans.current().output_settings.constant
    assert settings is not None
    assert settings["path"] == str(FOLDER / "people.db")
