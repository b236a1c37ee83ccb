"""Data judged by an input's schema: before the rules, and by the text kept with the version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.connectors.contract import Accepted, RejectedArrival
from pipo.errors import InvalidPipeline, Rejected
from pipo.journal import changes as journaled
from pipo.journal import versions
from pipo.lang.check import Source, restore
from pipo.lang.texts import Texts
from pipo_runner.pipeline.definition.versions import Edition
from tests.unit.runner.pipeline.rig import FOLDER, PLAIN, TABLE, Rig
from tests.unit.runner.pipeline.test_process import House, house, output

__all__ = ["house", "output"]

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "name": {"maxLength": 5}},
    "required": ["name"],
}
BODY = f"""
inputs:
  strict:
    via: push
    schema: ./person.json
    validate: ["data.age >= 18"]
    on_invalid: {{ message: "${{error.rule}} at ${{error.node}}: ${{error.message}}" }}
  lax: {{ via: push }}
nodes:
  both: {{ from: [strict, lax], filter: "true" }}
output: {{ from: both, {TABLE} }}
"""


def rig_with(body: str = BODY, schema: Any = SCHEMA, **more: Any) -> Rig:
    rig = Rig(auto=True, **more)
    texts = Texts("", {"./person.json": json.dumps(schema)})
    # Not checked: there is no such folder.
    pipeline = restore(Source(f"pipo: 1\nname: people\n{body}", "people.pipo"))
    rig.plans.put_in_force(Edition(2, pipeline, texts, FOLDER))
    return rig


async def taken_by(rig: Rig, data: Any, name: str = "strict") -> Any:
    (taken,) = await rig.parts.intake.take([rig.arrival(data, name)])
    return taken


@pytest.mark.parametrize(
    ("data", "rule", "message"),
    [
        ({"age": 30}, "schema", 'schema at strict: schema: data: "name" is a required property'),
        (
            {"age": "x", "name": "Bo"},
            "schema",
            'schema at strict: schema: data.age: "x" is not of type "integer"',
        ),
        (
            {"age": 3, "name": "Bo"},
            "data.age >= 18",
            "data.age >= 18 at strict: the rule 'data.age >= 18' does not hold",
        ),
    ],
)
async def test_the_schema_comes_before_the_rules(data: Any, rule: str, message: str) -> None:
    """Edges 1, 7 and 10."""
    rig = rig_with()
    assert await taken_by(rig, data) == RejectedArrival(
        rig.journal.of(journaled.Rejected)[0].unit, message, rule
    )
    (change,) = rig.journal.of(journaled.Rejected)
    code = "input.schema" if rule == "schema" else "input.invalid"
    assert (change.error.code, change.error.rule, change.error.node) == (code, rule, "strict")
    assert json.loads(change.data) == data
    assert len(rig.parts.pending) == 0


async def test_each_input_has_a_schema_of_its_own() -> None:
    """Edge 19."""
    rig = rig_with()
    assert isinstance(await taken_by(rig, {"age": 3}, "lax"), Accepted)
    assert isinstance(await taken_by(rig, {"age": 30, "name": "Bo"}), Accepted)


async def test_what_a_refusal_quotes_is_masked() -> None:
    """Edge 21."""
    rig = rig_with(secrets={"token": "s3cr3t-value"})
    taken = await taken_by(rig, {"name": "s3cr3t-value"})
    assert taken.message == 'schema at strict: schema: data.name: "***" is longer than 5 characters'


async def test_without_a_template_the_message_begins_with_the_word() -> None:
    body = PLAIN.replace("via: push", "via: push, schema: ./person.json")
    rig = rig_with(body, {"type": "integer"})
    taken = await taken_by(rig, "x", "input")
    assert taken.message == 'schema: data: "x" is not of type "integer"'


async def test_a_refusal_by_schema_may_be_told_to_an_agent() -> None:
    body = PLAIN.replace(
        "via: push", "via: push, schema: ./person.json, on_invalid: { then: agent }"
    )
    rig = rig_with(body, False)
    await taken_by(rig, 1, "input")
    assert [one.escalate for one in rig.journal.of(journaled.Rejected)] == [True]


TYPED = (
    "input: { via: push, schema: ./value.json }\n"
    "output: { from: input, to: file, with: { path: ./out.jsonl } }\n"
)


async def refusal(house: House, data: Any) -> str:
    with pytest.raises(Rejected) as raised:
        await house.push(data)
    return str(raised.value.message)


async def test_a_version_runs_with_the_schema_it_began_with(house: House) -> None:
    """Edges 342 and 355: another text is another version; the file itself is read at a start only."""
    file = house.folder / "value.json"
    file.write_text('{"type": "integer"}')
    process = await house.start(TYPED)
    file.write_text('{"type": "string"}')
    assert process.version == 1
    assert await house.settled(await house.push(3)) == "delivered"
    assert 'schema: data: "x" is not of type "integer"' in await refusal(house, "x")
    await house.end()
    assert (await house.start(TYPED)).version == 2
    assert await house.settled(await house.push("x")) == "delivered"
    assert 'schema: data: 3 is not of type "string"' in await refusal(house, 3)
    file.unlink()
    assert await house.settled(await house.push("y")) == "delivered"
    kept = [await versions.one(house.journal.rows, number) for number in (1, 2)]
    assert [version.files for version in kept if version] == [
        {"./value.json": '{"type": "integer"}'},
        {"./value.json": '{"type": "string"}'},
    ]
    await house.end()
    with pytest.raises(InvalidPipeline) as raised:
        await house.start(TYPED)
    assert [finding.code for finding in raised.value.findings] == ["P014"]
    await house.journal.close(clean=True)
    assert (await house.events()).count("packet.rejected") == 2
