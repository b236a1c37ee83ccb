"""A version's graph, compiled: what each step does and where its packets go next.

Pure: from the model and the manifests to closures over plain data. A plan is
made once per version and shared by all its units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pipo.connectors.contract import Manifest, OutsideStep, PureStep, Step, StepCall
from pipo.errors import InvalidState
from pipo.lang import steps
from pipo.lang.expressions import Expression, compile_expression
from pipo.lang.json_schema import BadSchema, JsonSchema
from pipo.lang.model import ErrorPolicy, Loop, Node, Pipeline, Then
from pipo.lang.rules.names import FUNCTION
from pipo.lang.templates import Template, compile_template
from pipo_runner.pipeline.definition.rendering import Settings
from pipo_runner.pipeline.flow.units import OUTPUT

Run = Callable[[dict[str, Any], StepCall], Any]
Compile = Callable[[Mapping[str, Any], Mapping[str, Any]], Settings]
"""A `with:` and its schema, compiled for this pipeline's folders."""
SAME: Final = object()
"""A step's result when the data goes on unchanged."""
FILTERED: Final = object()
"""A step's result when the packet goes no further."""


@dataclass(frozen=True, slots=True)
class Fork:
    """One of the ways that copies take behind a step: `name` is what their branch gains."""

    name: str
    cursor: str


Way = str | tuple[Fork, ...]
"""Where packets go behind a step: to the one that takes them, or split among several."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A route's result: the data goes on unchanged, this way."""

    way: Way


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """Where a node sends packets back to, until a condition holds of its result."""

    back_to: str
    until: Expression
    text: str
    max: int
    then: Then

    @property
    def limit_message(self) -> str:
        """Why a packet that may not be sent back again has failed (edge 131)."""
        return f"sent back {self.max} times (loop.max), and '{self.text}' still does not hold"


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node: `run(scope, call)` gives the new data, SAME, FILTERED or a Branch.

    One that reaches `outside` gives it once it is awaited. `follows` is empty for a route,
    whose branches say where its packets go.
    """

    id: str
    kind: str
    run: Run
    follows: Way
    policy: ErrorPolicy
    message: Template | None
    uses_meta: bool
    outside: bool
    loop: PlannedLoop | None

    @property
    def decides(self) -> bool:
        """An expression that fails, fails the same way again: it is not retried (edge 100)."""
        return self.kind in ("filter", "route")


NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})
EXTERNAL: Final = "external"
# A route's condition that always holds.
ELSE: Final = "else"


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

    `first_step` maps each input to where its packets begin.
    """

    version: int
    pipeline: Pipeline
    nodes: Mapping[str, PlannedNode]
    first_step: Mapping[str, Way]
    input_rules: Mapping[str, Rules]
    input_schemas: Mapping[str, JsonSchema]
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
    files: Path | None = None,
    build_step: Callable[[str, str], Step],
    texts: Mapping[str, str] = NO_TEXTS,
) -> Plan:
    """Compiles a checked pipeline. `build_step(role, name)` makes a connector's step.

    `folder` is its file's, `files` where its inputs keep what they fetch, `texts` what it is
    made with besides: the text of each file that it names, by the path as written.
    Raises: InvalidState, if a text is missing or is not what it was when it was checked.
    """
    ways = _ways(pipeline)
    compiled: Compile = partial(Settings, folder=folder, files=files)
    nodes = {
        node.id: _plan_node(node, ways, manifests, compiled, build_step) for node in pipeline.nodes
    }
    output_role = manifests[pipeline.output.to].output
    assert output_role is not None, pipeline.output.to
    output_settings = compiled(pipeline.output.settings, output_role.schema)
    rules = Rules.compile(pipeline.output.validate)
    rules_use_meta = any("meta" in rule.names for _, rule in rules.rules)
    check_schema = _check_schema(pipeline, manifests)
    return Plan(
        version=version,
        pipeline=pipeline,
        nodes=nodes,
        first_step={entry.name: ways[entry.name] for entry in pipeline.inputs},
        input_rules={entry.name: Rules.compile(entry.validate) for entry in pipeline.inputs},
        input_schemas=_schemas(pipeline, texts),
        output_settings=output_settings,
        output_rules=rules,
        output_uses_meta="meta" in output_settings.names or rules_use_meta,
        rules_use_meta=rules_use_meta,
        output_uses_key="meta" in output_settings.names,
        check_settings=compiled(pipeline.delivered.settings, check_schema),
        messages={
            "output": _message(pipeline.output.on_error.message),
            "output_invalid": _message(pipeline.output.on_invalid.message),
            "delivered": _message(pipeline.delivered.on_fail.message),
            **{f"input:{i.name}": _message(i.on_invalid.message) for i in pipeline.inputs},
        },
    )


def _schemas(pipeline: Pipeline, texts: Mapping[str, str]) -> dict[str, JsonSchema]:
    """The schemas of the inputs that have one."""
    found: dict[str, JsonSchema] = {}
    for entry in pipeline.inputs:
        if entry.schema is None:
            continue
        try:
            found[entry.name] = JsonSchema(texts[entry.schema])
        except (KeyError, BadSchema) as error:
            why = "is not kept with it" if isinstance(error, KeyError) else f"is unusable: {error}"
            raise InvalidState(
                f"the schema {entry.schema!r} of this version's input '{entry.name}' {why}",
                hint="edit the pipeline's file: a file that has changed is what a start runs",
            ) from error
    return found


def _message(text: str | None) -> Template | None:
    return None if text is None else compile_template(text)


def _check_schema(pipeline: Pipeline, manifests: Mapping[str, Manifest]) -> Mapping[str, Any]:
    role = manifests[pipeline.output.to].checks.get(pipeline.delivered.check)
    return {} if role is None else role.schema


def _ways(pipeline: Pipeline) -> dict[str, Way]:
    """Where the packets of each input, node and branch (`route.branch`) go next.

    A branch that nobody takes is left out.
    """
    takers: dict[str, list[Fork]] = {}
    for node in pipeline.nodes:
        for source in node.sources:
            takers.setdefault(source, []).append(Fork(node.id, node.id))
    for source in pipeline.output.sources:
        takers.setdefault(source, []).append(Fork(steps.OUTPUT, OUTPUT))
    return {
        source: forks[0].cursor if len(forks) == 1 else tuple(forks)
        for source, forks in takers.items()
    }


def _plan_node(
    node: Node,
    ways: Mapping[str, Way],
    manifests: Mapping[str, Manifest],
    compiled: Compile,
    build_step: Callable[[str, str], Step],
) -> PlannedNode:
    outside = False
    if node.kind == "filter":
        condition = compile_expression(node.uses)

        run, uses_meta = _keep(condition), "meta" in condition.names
    elif node.kind == "route":
        run, uses_meta = _choose(node, ways)
    else:
        run, uses_meta, outside = _connector_step(node, manifests, compiled, build_step)
    loop = _loop(node.loop)
    return PlannedNode(
        id=node.id,
        kind=node.kind,
        run=run,
        follows=ways.get(node.id, ()),
        policy=node.on_error,
        message=_message(node.on_error.message),
        uses_meta=uses_meta or (loop is not None and "meta" in loop.until.names),
        outside=outside,
        loop=loop,
    )


def _loop(loop: Loop | None) -> PlannedLoop | None:
    if loop is None:
        return None
    until = compile_expression(loop.until)
    return PlannedLoop(loop.back_to, until, loop.until, loop.max, loop.then)


def _keep(condition: Expression) -> Run:
    return lambda scope, call: SAME if condition.holds(scope) else FILTERED


def _choose(node: Node, ways: Mapping[str, Way]) -> tuple[Run, bool]:
    """The first branch whose condition holds; without one, or with nobody there, it is the end."""
    choices: list[tuple[Expression | None, Any]] = []
    for branch, condition in node.routes:
        way = ways.get(f"{node.id}.{branch}")
        result = FILTERED if way is None else Branch(way)
        choices.append((None if condition == ELSE else compile_expression(condition), result))

    def run(scope: dict[str, Any], call: StepCall) -> Any:
        for condition, result in choices:
            if condition is None or condition.holds(scope):
                return result
        return FILTERED

    return run, any(c is not None and "meta" in c.names for c, _ in choices)


def _connector_step(
    node: Node,
    manifests: Mapping[str, Manifest],
    compiled: Compile,
    build_step: Callable[[str, str], Step],
) -> tuple[Run, bool, bool]:
    if FUNCTION.fullmatch(node.uses):
        # Its `with:` is any map, and nobody reads it (facts 4.3).
        step = build_step(node.kind, node.uses)
        assert not step.pure, node.uses
        return _outside_run(step, compiled({}, {}), node.kind == "tap"), True, True
    manifest = manifests[node.uses]
    role = manifest.tap if node.kind == "tap" else manifest.transform
    assert role is not None, node.uses
    settings = compiled(node.settings, role.schema)
    step = build_step(node.kind, node.uses)
    is_tap = node.kind == "tap"
    run = _pure_run(step, settings, is_tap) if step.pure else _outside_run(step, settings, is_tap)
    return run, "meta" in settings.names or not step.pure, not step.pure


def _pure_run(step: PureStep, settings: Settings, is_tap: bool) -> Run:
    def run(scope: dict[str, Any], call: StepCall) -> Any:
        call.settings = settings.render(scope)
        result = step.run(call)
        return SAME if is_tap else result

    return run


def _outside_run(step: OutsideStep, settings: Settings, is_tap: bool) -> Run:
    async def run(scope: dict[str, Any], call: StepCall) -> Any:
        call.settings = settings.render(scope)
        result = await step.run(call)
        return SAME if is_tap else result

    return run
