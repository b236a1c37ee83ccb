"""A version compiled: edges, rules, and what its templates read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.connectors.contract import StepCall
from pipo.errors import InvalidState
from pipo.lang.check import Source, restore
from pipo_runner.pipeline.definition.plan import (
    FILTERED,
    SAME,
    Branch,
    Fork,
    Plan,
    Rules,
    make_plan,
)
from tests.unit.runner.pipeline.rig import FOLDER, PLAIN, TABLE, pipeline_of


class Echo:
    pure = True

    def run(self, call: StepCall) -> Any:
        return call.settings


def plan_of(body: str) -> Plan:
    return make_plan(
        pipeline_of(body),
        1,
        manifests=registry.manifests(),
        folder=FOLDER,
        build_step=lambda role, name: Echo(),  # type: ignore[arg-type, return-value]
    )


NODES = f"""
inputs: {{ a: {{ via: push }}, b: {{ via: push, validate: ["data.n > 1"] }} }}
nodes:
  some: {{ from: [a, b], filter: "data.n > 2" }}
  shape: {{ from: some, transform: map, with: {{ data: "${{meta.packet_id}}" }} }}
  told: {{ from: shape, tap: log, with: {{ message: "${{data}}" }} }}
output: {{ from: told, {TABLE} }}
"""


def call(data: Any) -> StepCall:
    return StepCall("u1", "n", data, {}, {})


def test_edges_lead_from_each_input_to_the_output() -> None:
    plan = plan_of(NODES)
    assert plan.first_step == {"a": "some", "b": "some"}
    assert {node.id: node.follows for node in plan.nodes.values()} == {
        "some": "shape", "shape": "told", "told": "$output",
    }  # fmt: skip


def test_without_nodes_a_packet_begins_at_the_output() -> None:
    assert plan_of(PLAIN).first_step == {"input": "$output"}


def test_each_input_has_only_its_own_rules() -> None:
    plan = plan_of(NODES)
    assert plan.input_rules["a"].broken({"data": {"n": 0}}) is None
    assert plan.input_rules["b"].broken({"data": {"n": 0}}) == (
        "data.n > 1", "the rule 'data.n > 1' does not hold",
    )  # fmt: skip


def test_the_first_rule_that_does_not_hold_is_named() -> None:
    rules = Rules.compile(("data > 1", "data > 2", "upper(data) == 'A'"))
    assert rules.broken({"data": 3}) == (
        "upper(data) == 'A'",
        "the rule 'upper(data) == 'A'' could not be evaluated: "
        "upper() takes a string, not a number",
    )
    broken = rules.broken({"data": 2})
    assert broken is not None
    assert broken[0] == "data > 2"
    assert Rules.compile(()).broken({}) is None


def test_a_step_gives_the_new_data_or_says_that_it_is_the_same() -> None:
    nodes = plan_of(NODES).nodes
    scope = {"data": {"n": 3}, "meta": {"packet_id": "u1"}}
    assert nodes["some"].run(scope, call({"n": 3})) is SAME
    assert nodes["some"].run({"data": {"n": 1}}, call({"n": 1})) is FILTERED
    assert nodes["shape"].run(scope, call({})) == {"data": "u1"}
    assert nodes["told"].run(scope, call({})) is SAME


def test_meta_is_made_only_where_a_template_names_it() -> None:
    nodes = plan_of(NODES).nodes
    assert [nodes[name].uses_meta for name in ("some", "shape", "told")] == [False, True, False]
    plan = plan_of(NODES)
    assert (plan.output_uses_meta, plan.output_uses_key) == (False, False)


@pytest.mark.parametrize("hole", ["${meta.key}", "${meta['key']}", "x ${ meta . key }"])
def test_a_key_in_the_settings_is_seen(hole: str) -> None:
    columns = f'{{ email: "${{data.email}}", k: "{hole}" }}'
    body = f"""
input: {{ via: push }}
output:
  from: input
  to: sqlite
  with: {{ path: ./a.db, table: t, key: email, columns: {columns} }}
"""
    plan = plan_of(body)
    assert plan.output_uses_meta
    assert plan.output_uses_key


def test_rules_of_the_output_that_read_meta_are_seen() -> None:
    body = PLAIN.replace("from: input,", 'from: input, validate: ["meta.hops < 3"],')
    assert plan_of(body).output_uses_meta


FORKED = f"""
inputs: {{ a: {{ via: push }}, b: {{ via: push }} }}
nodes:
  big: {{ from: [a, r.big], filter: "true" }}
  all: {{ from: a, filter: "true" }}
  r:
    from: b
    route: {{ big: "data.n > 5", mine: "meta.source == 'me'", nobody: "data.n == 4", rest: else }}
output: {{ from: [big, all, r.mine, r.big, r.rest], {TABLE} }}
"""


def test_several_takers_are_forks_in_the_order_of_the_file() -> None:
    plan = plan_of(FORKED)
    assert plan.first_step == {"a": (Fork("big", "big"), Fork("all", "all")), "b": "r"}
    assert plan.nodes["r"].follows == ()


@pytest.mark.parametrize(
    ("scope", "result"),
    [
        ({"data": {"n": 6}}, Branch((Fork("big", "big"), Fork("output", "$output")))),
        ({"data": {"n": 1}, "meta": {"source": "me"}}, Branch("$output")),
        ({"data": {"n": 4}, "meta": {"source": "you"}}, FILTERED),
        ({"data": {"n": 1}, "meta": {"source": "you"}}, Branch("$output")),
    ],
    ids=["both-hold", "one-taker", "nobody-takes-it", "else"],
)
def test_a_route_goes_the_first_branch_that_holds(scope: dict[str, Any], result: Any) -> None:
    route = plan_of(FORKED).nodes["r"]
    assert route.run(scope, call(scope["data"])) == result
    assert route.uses_meta
    assert route.decides


def test_a_route_without_a_branch_that_holds_is_an_end() -> None:
    body = f"""
input: {{ via: push }}
nodes: {{ r: {{ from: input, route: {{ one: "data.n == 1", two: "data.n == 2" }} }} }}
output: {{ from: [r.one, r.two], {TABLE} }}
"""
    route = plan_of(body).nodes["r"]
    assert route.run({"data": {"n": 3}}, call({"n": 3})) is FILTERED
    assert route.run({"data": {"n": 2}}, call({"n": 2})) == Branch("$output")
    assert not route.uses_meta


def test_a_universal_check_has_no_settings() -> None:
    plan = plan_of(PLAIN + "delivered: { check: none }\n")
    assert plan.check == "none"
    assert plan.check_settings.constant == {}


SCHEMED = f"""
input: {{ via: push, schema: ./age.json }}
output: {{ from: input, {TABLE} }}
"""


def schemed(**texts: str) -> Plan:
    return make_plan(
        # Not checked: the file of an older version may be gone.
        restore(Source(f"pipo: 1\nname: people\n{SCHEMED}", "people.pipo")),
        3,
        manifests=registry.manifests(),
        folder=FOLDER,
        build_step=lambda role, name: Echo(),  # type: ignore[arg-type, return-value]
        texts={f"./{name}.json": text for name, text in texts.items()},
    )


def test_a_schema_is_the_text_that_is_kept_with_the_version() -> None:
    schema = schemed(age='{"type": "integer"}').input_schemas["input"]
    assert schema.fault(3) is None
    assert schema.fault("3") == 'data: "3" is not of type "integer"'


@pytest.mark.parametrize(
    ("texts", "why"), [({}, "is not kept with it"), ({"age": "{"}, "is unusable: Expecting")]
)
def test_a_version_without_its_schema_is_refused(texts: dict[str, str], why: str) -> None:
    with pytest.raises(
        InvalidState, match=re.escape(f"'./age.json' of this version's input 'input' {why}")
    ):
        schemed(**texts)
