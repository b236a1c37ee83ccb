"""Each connector's output once, chosen by a packet's own version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pipo.connectors.contract import Output
from pipo.errors import InvalidState
from pipo_runner.pipeline.output.outputs import Outputs
from tests.unit.runner.pipeline.rig import PLAIN, FakeOutput, Rig, edition_of, pipeline_of


class Built:
    def __init__(self) -> None:
        self.by_name: dict[str, FakeOutput] = {}

    def __call__(self, name: str) -> Output:
        if name == "telegram":
            raise InvalidState("the output 'telegram' is not built yet")
        assert name not in self.by_name, "built twice"
        self.by_name[name] = FakeOutput()
        return self.by_name[name]


async def test_each_is_opened_once_with_the_marks() -> None:
    built = Built()
    outputs = Outputs(built)
    await outputs.open(["file", "sqlite", "file"], {"/out": 3})
    await outputs.open(["file"], {})
    assert [one.opened for one in built.by_name.values()] == [[{"/out": 3}]] * 2


async def test_one_that_did_not_open_is_opened_anew() -> None:
    """A replay may need an output that the start did not, and be asked for again."""

    class Closed(FakeOutput):
        async def open(self, marks: Mapping[str, int]) -> None:
            raise InvalidState("no folder")

    made: list[Output] = [Closed(), FakeOutput()]
    outputs = Outputs(lambda name: made.pop(0))
    with pytest.raises(InvalidState, match="no folder"):
        await outputs.open(["file"], {})
    await outputs.open(["file"], {})
    assert made == []


async def test_a_packet_goes_where_its_version_says() -> None:
    rig = Rig()
    older = rig.plans.current()
    to_file = PLAIN.replace("sqlite", "file").replace(", table: people, create: true", "")
    newer = rig.plans.put_in_force(edition_of(pipeline_of(to_file), 2))
    built = Built()
    outputs = Outputs(built)
    await outputs.open(rig.plans.outputs(), {})
    assert outputs.of(older) is built.by_name["sqlite"]
    assert outputs.of(newer) is built.by_name["file"]


async def test_one_that_is_not_built_refuses_the_start() -> None:
    with pytest.raises(InvalidState, match="telegram"):
        await Outputs(Built()).open(["telegram"], {})


class Wanting(FakeOutput):
    """Needs a bot."""

    def require(self, settings: Mapping[str, Any]) -> None:
        if "bot" not in settings:
            raise InvalidState(f"no bot in {sorted(settings)}")


async def test_what_an_output_needs_is_asked_of_the_version_in_force() -> None:
    plan = Rig().plans.current()
    for made in (Wanting(), FakeOutput()):
        outputs = Outputs(lambda name, made=made: made)  # type: ignore[misc]
        await outputs.open(["sqlite"], {})
        if isinstance(made, Wanting):
            with pytest.raises(InvalidState, match=r"no bot in \['create', 'path', 'table'\]"):
                outputs.require(plan)
        else:
            outputs.require(plan)
