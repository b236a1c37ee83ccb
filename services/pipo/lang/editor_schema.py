"""The whole `.pipo` format as one JSON Schema, for editors: completion, help and faults while typing.

It says what `check` says with P002, P030 to P033, P035, P036 and P060, and of names that
are taken (P015, P061) those that always are, from the same statements: the blocks of
`schema.py`, the positions of `ALLOWED`, the manifests. What depends on a word (`with` on
`via`, `check` on `output.to`) hangs on an `if`, so that a connector's settings are offered,
and judged, once its name stands there. An open block never repeats what a condition narrows:
an editor would offer both.

It cannot say what takes a graph, an expression, arithmetic or another file: everything else
that `check` finds, and one P002, the shortest poll of a Telegram bot.

`check` lets a template pass where only the form of a text is limited, and refuses one
where a literal is wanted; both are written out here, and the words for it (`x-…`) left out.

Source: facts §1, §2, §6; design §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pipo import durations
from pipo.lang import schema as blocks
from pipo.lang.json_schema import compiled
from pipo.lang.model import KINDS
from pipo.lang.rules.names import INPUTS_LIMIT, PIPOS_OWN, RESERVED
from pipo.lang.rules.policies import ALLOWED, UNIVERSAL_CHECKS, supported_checks
from pipo.lang.shape import NO_SETTINGS
from pipo.lang.validation import FORM, JUDGED_ELSEWHERE, PATTERNS

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest, Role

Schema = dict[str, Any]
Manifests = Mapping[str, "Manifest"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ID: Final = "urn:pipo:pipeline:1"

_THEN: Final = {
    "dead_letter": "Keeps it, with its data and the reason, until someone replays or purges it.",
    "drop": "Ends it as filtered.",
    "continue": "Goes on as if the tap had worked.",
    "pause": "Pauses the pipeline; the packet stays where it is.",
    "halt": "Stops the pipeline as failed; the packet stays where it is.",
    "agent": "Hands over to an agent; needs `agent.control: true`.",
    "notify": "Says so, and changes nothing.",
}
_CHECKS: Final = {
    "ack": "The write succeeded.",
    "external": "Someone acknowledges it within `within`.",
    "none": "Nothing is looked at.",
}
_FUNCTION: Final = {
    "type": "string",
    "pattern": r"^fn\.[A-Za-z_$][A-Za-z0-9_$]*$",
    "x-literal": True,
    "description": "A function of the module that `fn` names: `fn.<name>`.",
}
# A text that `check` may take for a template, and one that is.
_ANY_HOLE: Final = r"\$\{"
_HOLE: Final = r"(^|[^$])\$\{"

# The kinds of node that a function of the file's own can be; a node of another kind with a
# connector is an agent.
_TAKES_FN: Final = ("tap", "transform")
_TYPES: Final = {str: "string", int: "integer"}

# Keywords whose value is a schema, a map of schemas, or a list of them. Names of keys are no
# templates, and neither is what a condition compares.
_INNER: Final = ("items", "additionalProperties", "then", "else")
_INNER_MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "$defs")
_INNER_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")


def editor_schema(manifests: Manifests) -> Schema:
    """The JSON Schema (2020-12) of a pipeline's file, for an installation's connectors."""
    whole = {
        **_with(blocks.FILE, **_top_level()),
        "oneOf": [{"required": ["input"]}, {"required": ["inputs"]}],
        "allOf": _deliveries(manifests),
        "$defs": {
            "input": _input(manifests),
            "node": _node(manifests),
            "output": _output(manifests),
            "tap_error": _then(_property(blocks.NODE, "on_error"), "a tap's on_error"),
            "node_error": _then(_property(blocks.NODE, "on_error"), "on_error"),
            **_delivered(manifests),
            **_settings(manifests),
        },
    }
    return {"$schema": DIALECT, "$id": ID, "title": "A Pipo pipeline", **_printed(whole)}


# ── blocks ───────────────────────────────────────────────────────────────────


def _top_level() -> dict[str, Schema]:
    version = _property(blocks.FILE, "pipo")
    inputs, nodes = _property(blocks.FILE, "inputs"), _property(blocks.FILE, "nodes")
    return {
        "pipo": {**version, "default": version["const"]},
        "name": {**_property(blocks.FILE, "name"), "not": {"const": PIPOS_OWN}},
        "errors": _then(_property(blocks.FILE, "errors"), "errors"),
        "input": _ref("input"),
        "inputs": {
            **inputs,
            "maxProperties": INPUTS_LIMIT,
            "propertyNames": {**inputs["propertyNames"], "not": {"const": "output"}},
            "additionalProperties": _ref("input"),
        },
        "nodes": {
            **nodes,
            "propertyNames": {**nodes["propertyNames"], "not": {"enum": list(RESERVED)}},
            "additionalProperties": _ref("node"),
        },
        "output": _ref("output"),
        "delivered": _ref("delivered"),
    }


def _input(manifests: Manifests) -> Schema:
    made = _with(
        blocks.INPUT,
        via=_named(_property(blocks.INPUT, "via"), manifests, "input"),
        on_invalid=_then(_property(blocks.INPUT, "on_invalid"), "an input's on_invalid"),
    )
    silent = {"properties": {"on_invalid": {"properties": {"respond": False}}}}
    answers = {"if": {"properties": {"via": _is("http")}}, "else": silent}
    return {**made, "allOf": [*_settings_by("via", manifests, "input"), answers]}


def _node(manifests: Manifests) -> Schema:
    made = _with(
        blocks.NODE,
        **{role: _own(_property(blocks.NODE, role), manifests, role) for role in _TAKES_FN},
        agent=_named(_property(blocks.NODE, "agent"), manifests, "agent"),
        on_error={"description": _property(blocks.NODE, "on_error")["description"]},
        loop=_then(_property(blocks.NODE, "loop"), "loop"),
    )
    lenient = {
        "if": {"required": ["tap"]},
        "then": {"properties": {"on_error": _ref("tap_error")}},
        "else": {"properties": {"on_error": _ref("node_error")}},
    }
    by_kind = [each for r in (*_TAKES_FN, "agent") for each in _settings_by(r, manifests, r)]
    return {
        **made,
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "allOf": [*by_kind, lenient],
    }


def _output(manifests: Manifests) -> Schema:
    on_invalid = _then(_property(blocks.OUTPUT, "on_invalid"), "output.on_invalid")
    answerless = {k: v for k, v in on_invalid["properties"].items() if k != "respond"}
    made = _with(
        blocks.OUTPUT,
        to=_named(_property(blocks.OUTPUT, "to"), manifests, "output"),
        on_invalid={**on_invalid, "properties": answerless},
        on_error=_then(_property(blocks.OUTPUT, "on_error"), "output.on_error"),
    )
    single = [n for n, m in manifests.items() if m.output and not m.output.batches]
    unbatched = {
        "if": {"required": ["to"], "properties": {"to": _is(*single)}},
        "then": {"properties": {"batch": False}},
    }
    return {**made, "allOf": [*_settings_by("to", manifests, "output"), unbatched]}


def _delivered(manifests: Manifests) -> dict[str, Schema]:
    """The block as it is in any case, and what each output makes of it."""
    made = _with(
        blocks.DELIVERED,
        on_fail=_then(_property(blocks.DELIVERED, "on_fail"), "delivered.on_fail"),
        stall=_then(_property(blocks.DELIVERED, "stall"), "stall"),
    )
    universal = {
        "if": {"properties": {"check": _is(*UNIVERSAL_CHECKS)}},
        "then": {"properties": {"with": dict(NO_SETTINGS)}},
    }
    by_output = {
        f"delivered.{to}": _delivered_by(to, manifest, manifest.output.checks)
        for to, manifest in manifests.items()
        if manifest.output
    }
    return {"delivered": {**made, "allOf": [universal]}, **by_output}


def _delivered_by(to: str, manifest: Manifest, own: tuple[str, ...]) -> Schema:
    made: Schema = {"properties": {"check": _checks([manifest], supported_checks(own))}}
    settings = [
        _when("check", check, _settled(f"check.{to}.{check}", manifest.checks[check].schema))
        for check in own
    ]
    return {**made, "allOf": settings} if settings else made


def _deliveries(manifests: Manifests) -> list[Schema]:
    """`delivered` by `output.to`, which stands beside it (P031); any check while that is unknown."""
    outputs = [name for name, manifest in manifests.items() if manifest.output]
    known = sorted({check for manifest in manifests.values() for check in manifest.checks})
    every = _checks(manifests.values(), supported_checks(tuple(known)))
    return [
        *(
            {
                "if": _sends_to(_is(to)),
                "then": {"properties": {"delivered": _ref(f"delivered.{to}")}},
            }
            for to in outputs
        ),
        {
            "if": _sends_to(_is(*outputs)),
            "else": {"properties": {"delivered": {"properties": {"check": every}}}},
        },
    ]


def _sends_to(name: Schema) -> Schema:
    # With `from`, since an editor inserts what is required here together with `output`.
    keys = {"from": {"type": ["string", "array"]}, "to": name}
    output = {"type": "object", "required": list(keys), "properties": keys}
    return {"required": ["output"], "properties": {"output": output}}


# ── settings ─────────────────────────────────────────────────────────────────


def _settings(manifests: Manifests) -> dict[str, Schema]:
    """Every `with` that a connector takes, as `<role>.<connector>` or `check.<output>.<check>`."""
    made: dict[str, Schema] = {}
    for name, manifest in manifests.items():
        for role in ("input", "tap", "transform", "agent", "output"):
            if found := getattr(manifest, role):
                made[f"{role}.{name}"] = {**found.schema, "description": _meaning(manifest, found)}
        for check, found in manifest.checks.items():
            made[f"check.{name}.{check}"] = dict(found.schema)
    return made


def _settings_by(key: str, manifests: Manifests, role: str) -> list[Schema]:
    """`with` by the connector that a key names."""
    roles = {name: getattr(manifest, role) for name, manifest in manifests.items()}
    return [
        _when(key, name, _settled(f"{role}.{name}", found.schema))
        for name, found in roles.items()
        if found
    ]


def _settled(name: str, settings: Mapping[str, Any]) -> Schema:
    """A block whose `with` has these settings, and is there when one of them has to be."""
    made: Schema = {"properties": {"with": _ref(name)}}
    return made if compiled(settings).is_valid({}) else {**made, "required": ["with"]}


# ── words ────────────────────────────────────────────────────────────────────


def _meaning(manifest: Manifest, role: Role) -> str:
    return str(role.schema.get("description", manifest.summary))


def _named(base: Schema, manifests: Manifests, role: str) -> Schema:
    """One of the connectors that have a role, each with what it does in it."""
    roles = {name: getattr(manifest, role) for name, manifest in manifests.items()}
    able = {name: _meaning(manifests[name], found) for name, found in roles.items() if found}
    return {"description": base["description"], **_words(able)}


def _own(base: Schema, manifests: Manifests, role: str) -> Schema:
    """One of the connectors that have a role, or a function of the file's own."""
    able = _named(base, manifests, role)
    return {"description": base["description"], "anyOf": [able, _FUNCTION]}


def _checks(manifests: Iterable[Manifest], names: Iterable[str]) -> Schema:
    """One of some checks, each with when it passes."""
    own = {check: _meaning(m, role) for m in manifests for check, role in m.checks.items()}
    base = _property(blocks.DELIVERED, "check")
    words = _words({name: {**own, **_CHECKS}[name] for name in names})
    return {**{key: value for key, value in base.items() if key != "type"}, **words}


def _then(block: Schema, where: str) -> Schema:
    """A policy whose `then` is what its position allows (P033)."""
    base = _property(block, "then")
    allowed = _words({word: _THEN[word] for word in ALLOWED[where]})
    kept = {key: value for key, value in base.items() if key in ("description", "default")}
    return _with(block, then={**kept, **allowed})


def _words(described: Mapping[str, str]) -> Schema:
    return {"enum": list(described), "enumDescriptions": list(described.values())}


# ── JSON Schema ──────────────────────────────────────────────────────────────


def _property(block: Schema, name: str) -> Schema:
    found: Schema = block["properties"][name]
    return found


def _with(block: Schema, **properties: Schema) -> Schema:
    return {**block, "properties": {**block["properties"], **properties}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _when(key: str, value: str, then: Schema) -> Schema:
    return {"if": {"required": [key], "properties": {key: _is(value)}}, "then": then}


def _is(*words: str) -> Schema:
    """A condition on a word. It says the type too, or an editor inserts the key without its colon."""
    return {"type": "string", **({"const": words[0]} if len(words) == 1 else {"enum": list(words)})}


def _printed(schema: Any) -> Any:
    """A schema in standard words: templates written out, our own words gone, at every depth."""
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for key in _INNER:
        if key in made:
            made[key] = _printed(made[key])
    for key in _INNER_MAPS:
        if key in made:
            made[key] = {name: _printed(inner) for name, inner in made[key].items()}
    for key in _INNER_LISTS:
        if key in made:
            made[key] = [_printed(inner) for inner in made[key]]
    made = _templated(made)
    if least := made.get("x-least"):
        made["not"] = {"pattern": durations.SHORTER[least]}
    return {**_typed(made), **{key: made[key] for key in made if not key.startswith("x-")}}


def _templated(schema: Schema) -> Schema:
    """What a literal or a limited form says of templates, in words that an editor knows."""
    if schema.get("x-literal"):
        judged = JUDGED_ELSEWHERE - {"format"}
        return schema if schema.keys() & judged else {**schema, "not": {"pattern": _HOLE}}
    form = {key: schema[key] for key in FORM if key in schema}
    if not form:
        return schema
    rest = {key: value for key, value in schema.items() if key not in form}
    either = {"anyOf": [{**form, **_typed(form)}, {"pattern": _ANY_HOLE}]}
    return {**rest, "allOf": [*rest.get("allOf", ()), either]}


def _typed(schema: Schema) -> Schema:
    """The type that a schema's words imply, and its pattern in words: an editor says both."""
    made: Schema = {}
    if words := PATTERNS.get(schema.get("pattern", "")):
        made["patternErrorMessage"] = f"This takes {words}."
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    branches = schema.get("anyOf", [])
    types = [_TYPES.get(type(v)) for v in values] + [b.get("type") for b in branches]
    if types and all(isinstance(each, str) for each in types) and "type" not in schema:
        one, *more = dict.fromkeys(types)
        made["type"] = [one, *more] if more else one
    return made
