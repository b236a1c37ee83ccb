"""A version's graph, compiled: what each step does and where its packets go next.

Pure: from the model and the manifests to closures over plain data. A plan is
made once per version and shared by all its units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipo.connectors.contract import Manifest, PureStep, StepCall
from pipo.errors import InvalidState
from pipo.lang.expressions import Expression, compile_expression
from pipo.lang.model import ErrorPolicy, Node, Pipeline
from pipo.lang.templates import Template, compile_template
from pipo_runner.pipeline.rendering import Settings
from pipo_runner.pipeline.units import OUTPUT

Run = Callable[[dict[str, Any], StepCall], Any]
SAME: Final = object()
"""A step's result when the data goes on unchanged."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node: `run(scope, call)` gives the new data, SAME, or FILTERED."""

    id: str
    kind: str
    run: Run
    follows: str
    policy: ErrorPolicy
    message: Template | None
    uses_meta: bool


FILTERED: Final = object()
EXTERNAL: Final = "external"


@dataclass(frozen=True, slots=True)
class Rules:
    """Expressions that must all be true; each keeps its text for the error."""

    rules: tuple[tuple[str, Expression], ...]

    @classmethod
    def compile(cls, texts: tuple[str, ...]) -> Rules:
        return cls(tuple((text, compile_expression(text)) for text in texts))

    def broken(self, scope: Mapping[str, Any]) -> tuple[str, str] | None:
        """The first rule that does not hold and why, or None (edge 8)."""
        for text, expression in self.rules:
            try:
                if not expression.holds(scope):
                    return text, f"the rule '{text}' does not hold"
            except Exception as error:
                return text, f"the rule '{text}' could not be evaluated: {error}"
        return None


@dataclass(frozen=True, slots=True)
class Plan:
    """One version, ready to run.

    `first_step` maps each input to the cursor its packets begin at.
    """

    version: int
    pipeline: Pipeline
    nodes: Mapping[str, PlannedNode]
    first_step: Mapping[str, str]
    input_rules: Mapping[str, Rules]
    output_settings: Settings
    output_rules: Rules
    output_uses_meta: bool
    rules_use_meta: bool
    output_uses_key: bool
    check_settings: Settings
    messages: Mapping[str, Template | None] = field(default_factory=dict)

    @property
    def settled_by_write(self) -> bool:
        """Its check needs no look at the destination: the write itself settles a unit."""
        return self.check in ("ack", "none")

    @property
    def parks(self) -> bool:
        """Its check is an ack from outside: a written unit is parked until it comes."""
        return self.check == EXTERNAL

    @property
    def batches(self) -> bool:
        """Its units wait for each other at the output, and are written at once."""
        return self.pipeline.output.batch is not None

    @property
    def check(self) -> str:
        return self.pipeline.delivered.check


def make_plan(
    pipeline: Pipeline,
    version: int,
    *,
    manifests: Mapping[str, Manifest],
    folder: Path,
    build_step: Callable[[str, str], PureStep],
) -> Plan:
    """Compiles a checked pipeline. `build_step(role, name)` makes a connector's step."""
    follows = _edges(pipeline)
    nodes = {
        node.id: _plan_node(node, follows[node.id], manifests, folder, build_step)
        for node in pipeline.nodes
    }
    output_role = manifests[pipeline.output.to].output
    assert output_role is not None, pipeline.output.to
    output_settings = Settings(pipeline.output.settings, output_role.schema, folder)
    rules = Rules.compile(pipeline.output.validate)
    rules_use_meta = any("meta" in rule.names for _, rule in rules.rules)
    check_schema = _check_schema(pipeline, manifests)
    return Plan(
        version=version,
        pipeline=pipeline,
        nodes=nodes,
        first_step={entry.name: follows[entry.name] for entry in pipeline.inputs},
        input_rules={entry.name: Rules.compile(entry.validate) for entry in pipeline.inputs},
        output_settings=output_settings,
        output_rules=rules,
        output_uses_meta="meta" in output_settings.names or rules_use_meta,
        rules_use_meta=rules_use_meta,
        output_uses_key="meta" in output_settings.names,
        check_settings=Settings(pipeline.delivered.settings, check_schema, folder),
        messages={
            "output": _message(pipeline.output.on_error.message),
            "output_invalid": _message(pipeline.output.on_invalid.message),
            "delivered": _message(pipeline.delivered.on_fail.message),
            **{f"input:{i.name}": _message(i.on_invalid.message) for i in pipeline.inputs},
        },
    )


def _message(text: str | None) -> Template | None:
    return None if text is None else compile_template(text)


def _check_schema(pipeline: Pipeline, manifests: Mapping[str, Manifest]) -> Mapping[str, Any]:
    role = manifests[pipeline.output.to].checks.get(pipeline.delivered.check)
    return {} if role is None else role.schema


def _edges(pipeline: Pipeline) -> dict[str, str]:
    """Where each input's and node's packets go next; `$output` at the end."""
    follows: dict[str, str] = {}
    takers = [(node.id, node.sources) for node in pipeline.nodes]
    takers.append((OUTPUT, pipeline.output.sources))
    for taker, sources in takers:
        for source in sources:
            if source in follows:
                raise InvalidState(
                    f"'{source}' feeds both '{follows[source]}' and '{taker}': fan-out is not built yet",
                    hint="let each step feed one step",
                )
            follows[source] = taker
    return follows


def _plan_node(
    node: Node,
    follows: str,
    manifests: Mapping[str, Manifest],
    folder: Path,
    build_step: Callable[[str, str], PureStep],
) -> PlannedNode:
    if node.kind == "filter":
        condition = compile_expression(node.uses)

        run, uses_meta = _keep(condition), "meta" in condition.names
    else:
        run, uses_meta = _connector_step(node, manifests, folder, build_step)
    return PlannedNode(
        id=node.id,
        kind=node.kind,
        run=run,
        follows=follows,
        policy=node.on_error,
        message=_message(node.on_error.message),
        uses_meta=uses_meta,
    )


def _keep(condition: Expression) -> Run:
    return lambda scope, call: SAME if condition.holds(scope) else FILTERED


def _connector_step(
    node: Node,
    manifests: Mapping[str, Manifest],
    folder: Path,
    build_step: Callable[[str, str], PureStep],
) -> tuple[Run, bool]:
    manifest = manifests[node.uses]
    role = manifest.tap if node.kind == "tap" else manifest.transform
    assert role is not None, node.uses
    settings = Settings(node.settings, role.schema, folder)
    step = build_step(node.kind, node.uses)
    is_tap = node.kind == "tap"

    def run(scope: dict[str, Any], call: StepCall) -> Any:
        call.settings = settings.render(scope)
        result = step.run(call)
        return SAME if is_tap else result

    return run, "meta" in settings.names
