"""The generated sections of docs/language.md, each from the code that means it.

keys of blocks      pipo.lang.schema
`with:`, checks     the manifests of the connectors
variables, `then`   the rules of the check
helpers             pipo.lang.functions
diagnostics         pipo.lang.codes
not built yet       the connectors' modules, and what the runner refuses
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from docs.words import Schema, code, codes_of, kind, shown_default, table, takes_template
from pipo.connectors import registry
from pipo.connectors.contract import UNIVERSAL_CHECKS, Manifest, Role
from pipo.errors import InvalidState
from pipo.lang import codes, functions, grammar, load, schema
from pipo.lang.check import Source, parse
from pipo.lang.editor_schema import editor_schema
from pipo.lang.model import KINDS
from pipo.lang.rules import policies, texts
from pipo.lang.rules.names import INPUTS_LIMIT
from pipo_runner.pipeline.definition.unbuilt import later

_MANIFESTS = registry.manifests()
_ROLES: Final = ("input", "tap", "transform", "agent", "output")
"""In the order of the page."""

BLOCKS: Final[Mapping[str, Schema]] = {
    "pipeline": schema.FILE,
    "input": schema.INPUT,
    "on_invalid": schema.ON_INVALID,
    "node": schema.NODE,
    "loop": schema.LOOP,
    "errors": schema.FILE["properties"]["errors"],
    "output": schema.OUTPUT,
    "batch": schema.OUTPUT["properties"]["batch"],
    "delivered": schema.DELIVERED,
    "stall": schema.DELIVERED["properties"]["stall"],
    "lifetime": schema.LIFETIME,
    "agent": schema.AGENT,
    "agent_budget": schema.AGENT_BUDGET,
    "retention": schema.RETENTION,
}

# Keys that name a connector, and the role that it must have.
_CONNECTORS: Final = {
    ("input", "via"): "input",
    ("node", "tap"): "tap",
    ("node", "transform"): "transform",
    ("node", "agent"): "agent",
    ("output", "to"): "output",
}
# Blocks that stand in one place, as `policies.ALLOWED` calls it; an input's `on_invalid` takes less.
_WHERE: Final = {"on_invalid": "output.on_invalid", "loop": "loop", "stall": "stall"}

# Where a text stands, whether it is an expression, and the row of the rules that it follows.
POSITIONS: Final = (
    ("`validate` of an input, `filter`, `route`, `loop.until`", "expression", texts.RULE),
    ("`output.validate`", "expression", texts.OUTPUT_RULE),
    ("`lifetime.until`", "expression", texts.UNTIL),
    ("`with` of an input", "template", texts.INPUT_WITH),
    ("`with` of a node and of the output", "template", texts.WITH),
    ("`delivered.with`", "template", texts.DELIVERED_WITH),
    ("`message` of an input's `on_invalid`, of `errors`, of a node", "template", texts.MESSAGE),
    ("`message` of `output.on_invalid`, `output.on_error`", "template", texts.OUTPUT_MESSAGE),
    ("`message` of `delivered.on_fail`", "template", texts.ON_FAIL_MESSAGE),
    ("`message` of `delivered.stall`", "template", texts.STALL_MESSAGE),
)

_EFFECTS: Final = {
    None: "runs again; nothing outside sees it",
    "external": "reaches outside again",
    "spend": "asks, and spends, again",
    "write": "writes again",
}
_REPEATED_WRITE: Final = "writes again, with the same key"
_NOT_BUILT: Final = "Not built yet."
_NO_SETTINGS: Final = "Takes no settings."

_TRIAL: Final = "pipo: 1\nname: trial\ninput: { via: push }\n"


# ── blocks ──


def keys(block: str) -> str:
    """The keys of one block."""
    made = BLOCKS[block]
    required = made.get("required", ())
    return table(
        ("key", "value", "default", "meaning"),
        (
            (
                code(name),
                _value(block, name),
                shown_default(one, name in required),
                one["description"],
            )
            for name, one in made["properties"].items()
        ),
    )


def _value(block: str, key: str) -> str:
    """What a key takes; where that is a connector or a `then`, those that may stand there."""
    if (block, key) in _CONNECTORS:
        words = [*_having(_CONNECTORS[block, key])]
        return codes_of([*words, "fn.<name>"] if key in ("tap", "transform") else words)
    if key == "then" and block in _WHERE:
        return codes_of(policies.ALLOWED[_WHERE[block]])
    return kind(BLOCKS[block]["properties"][key])


def settings(role: Role) -> str:
    """The keys of one `with:`, those of blocks inside it by dotted names."""
    rows = list(_settings(role.schema))
    if not rows:
        return _NO_SETTINGS
    head = ("key", "value", "default", "template", "meaning")
    return "\n\n".join([table(head, rows), *_together(role.schema)])


def _settings(made: Schema, before: str = "") -> Iterator[tuple[str, ...]]:
    required = made.get("required", ())
    for name, one in made.get("properties", {}).items():
        is_block = "properties" in one
        is_template = not is_block and takes_template(one)
        default = shown_default(one, name in required)
        if before and default == "required":
            default = f"required in {code(before.rstrip('.'))}"
        yield (
            code(before + name),
            kind(one),
            default,
            "yes" if is_template else "",
            one["description"],
        )
        if is_block:
            yield from _settings(one, f"{before}{name}.")


def _together(made: Schema, before: str = "") -> Iterator[str]:
    """What the schema asks of several keys at once, at any depth."""
    if "anyOf" in made:
        names = [name for one in made["anyOf"] for name in one.get("required", ())]
        yield f"One of {' and '.join(code(before + name) for name in names)} must be there."
    needs = made.get("dependentRequired", {})
    for pair in dict.fromkeys(tuple(sorted((one, *others))) for one, others in needs.items()):
        yield f"{' and '.join(code(before + name) for name in pair)} go together."
    for name, one in made.get("properties", {}).items():
        if "properties" in one:
            yield from _together(one, f"{before}{name}.")


# ── connectors ──


def _having(role: str) -> dict[str, Manifest]:
    return {name: made for name, made in _MANIFESTS.items() if getattr(made, role)}


def connectors(role: str) -> str:
    """One part for each connector of a role."""
    return "\n\n".join(_connector(role, made) for made in _having(role).values())


def _connector(role: str, manifest: Manifest) -> str:
    own: Role = getattr(manifest, role)
    summary = own.schema.get("description", manifest.summary)
    if not _is_built(role, manifest.name):
        summary = f"{summary} *{_NOT_BUILT}*"
    twin = _twin(role, manifest.name)
    body = f"Takes what the [{twin[0]} `{twin[1]}`](#{twin[0]}-{twin[1]}) takes." if twin else ""
    return f"#### {role.capitalize()} {code(manifest.name)}\n\n{summary}\n\n{body or settings(own)}"


def _twin(role: str, name: str) -> tuple[str, str] | None:
    """The first connector on the page that takes the same settings, when it is another one."""
    wanted = settings(getattr(_MANIFESTS[name], role))
    for other in _ROLES:
        for known, manifest in _having(other).items():
            if settings(getattr(manifest, other)) == wanted:
                return None if (other, known) == (role, name) else (other, known)
    return None


def _is_built(role: Any, name: str) -> bool:
    return registry.is_built(role, name)


# ── checks ──


def passing() -> str:
    """Every check and when it passes."""
    defined = editor_schema(_MANIFESTS)["$defs"]
    found: dict[str, str] = {}
    for name in _having("output"):
        found |= _described(defined[f"delivered.{name}"]["properties"]["check"])
    return table(("check", "passes when"), ((code(name), said) for name, said in found.items()))


def _described(made: Schema) -> dict[str, str]:
    """The words of an enumeration and what each means."""
    return dict(zip(made["enum"], made["enumDescriptions"], strict=True))


def checks() -> str:
    """The settings of every check that takes some."""
    found = {name: role for made in _MANIFESTS.values() for name, role in made.checks.items()}
    rows: list[Sequence[str]] = []
    for name, role in found.items():
        together = " ".join(_together(role.schema))
        for key, value, default, template, meaning in _settings(role.schema):
            said = f"{meaning} {together}" if together else meaning
            rows.append((code(name), key, value, default, template, said))
            together = ""
    return table(("check", "key", "value", "default", "template", "meaning"), rows)


def compatibility() -> str:
    """Which output takes which check, and which writes in batches."""
    outputs = {name: made.output for name, made in _having("output").items() if made.output}
    own = dict.fromkeys(check for role in outputs.values() for check in role.checks)
    rows = [
        (
            code(check),
            *(
                "yes" if check in policies.supported_checks(o.checks) else ""
                for o in outputs.values()
            ),
        )
        for check in (*UNIVERSAL_CHECKS, *own)
    ]
    rows.append(("`batch`", *("yes" if role.batches else "" for role in outputs.values())))
    return table(("", *(code(name) for name in outputs)), rows)


def reruns() -> str:
    """What a step does when a packet is run again."""
    rows = []
    for role in ("tap", "transform", "agent", "output"):
        by_effect: dict[str, list[str]] = {}
        for name, manifest in _having(role).items():
            effect = _EFFECTS[getattr(manifest, role).effect]
            by_effect.setdefault(_REPEATED_WRITE if role == "output" else effect, []).append(name)
        rows += [(role, codes_of(names), effect) for effect, names in by_effect.items()]
    return table(("step", "connector", "in a rerun it"), rows)


# ── the language ──


def variables() -> str:
    """Which variables a text sees, by where it stands."""
    return table(
        ("where", "what", "variables"),
        ((where, what, codes_of(names)) for where, what, names in POSITIONS),
    )


def meanings_of_then() -> str:
    """Every `then` of an error policy and what it does."""
    words = editor_schema(_MANIFESTS)["$defs"]["tap_error"]["properties"]["then"]
    rows = ((code(word), said) for word, said in _described(words).items())
    return table(("`then`", "what becomes of the packet"), rows)


def thens() -> str:
    """Which `then` may stand where."""
    return table(
        ("in", "`then` may be"), ((where, codes_of(w)) for where, w in policies.ALLOWED.items())
    )


def helpers() -> str:
    rows = (
        (code(f"{one.name}({', '.join('xy'[: one.arity])})"), one.summary)
        for one in functions.HELPERS.values()
    )
    return table(("helper", "gives"), rows)


def diagnostics() -> str:
    """Every code, in order."""
    return table(
        ("code", "severity", "what", "what to do"),
        ((one.code, one.severity, one.title, one.advice) for one in codes.CODES.values()),
    )


# ── what is not built yet ──


def unbuilt() -> str:
    """What the language knows and this version refuses to start, by the code's own account."""
    lines = [*_unbuilt_connectors(), *_unbuilt_settings()]
    if features := [*_unbuilt_features()]:
        lines.append(f"- of the language: {', '.join(features)}")
    return "\n".join(lines) or "Nothing: this version runs all of it."


def _unbuilt_connectors() -> Iterator[str]:
    for role in _ROLES:
        names = [name for name in _having(role) if not _is_built(role, name)]
        if names:
            yield f"- {role}s: {codes_of(names)}"


def _unbuilt_settings() -> Iterator[str]:
    """Words of a built connector's settings that its module refuses."""
    for role in ("input", "tap", "transform", "output"):
        for name, manifest in _having(role).items():
            if not _is_built(role, name):
                continue
            for key, made in getattr(manifest, role).schema["properties"].items():
                words = [word for word in made.get("enum", ()) if _refused(role, name, {key: word})]
                if words:
                    yield f"- {role} {code(name)}: {code(key)} as {codes_of(words)}"


def _refused(role: Any, name: str, tried: Mapping[str, Any]) -> bool:
    try:
        registry.require_built(role, name, tried)
    except InvalidState:
        return True
    return False


def _unbuilt_features() -> Iterator[str]:
    smallest = parse(
        Source(f"{_TRIAL}output: {{ from: input, to: stdout }}\n", "trial"), _MANIFESTS
    )
    yield from (name for name, _ in later(smallest))


def _block(name: str) -> Callable[[], str]:
    return lambda: keys(name)


def _state(feature: str) -> Callable[[], str]:
    return lambda: f"*{_NOT_BUILT}*" if feature in _unbuilt_features() else ""


def limits() -> str:
    """What bounds a file and its texts."""
    rows = (
        ("a file", f"{load.BYTES_LIMIT // 1024} KiB, {load.DEPTH_LIMIT} levels deep"),
        ("keys and values in a file", f"{load.VALUES_LIMIT:,}"),
        ("aliases (`*name`) in a file", f"{load.ALIAS_NODES_LIMIT:,} values in all"),
        ("a pipeline's name", f"{schema.NAME_MAX} characters"),
        ("inputs", str(INPUTS_LIMIT)),
        (
            "an expression",
            f"{grammar.LENGTH_LIMIT:,} characters, {grammar.NODE_LIMIT} parts, "
            f"{grammar.DEPTH_LIMIT} levels deep",
        ),
        ("a pattern of `matches`", f"{functions.PATTERN_LIMIT} characters"),
    )
    return table(("what", "at most"), rows)


def _role(role: str) -> Callable[[], str]:
    return lambda: connectors(role)


# Parts of the page, and what the runner calls them while it refuses them.
_STATES: Final = {
    "functions": "fn modules",
    "batches": "output.batch",
    "stalls": "delivered.stall",
    "lifetime": "lifetime",
    "retention": "retention",
}

SECTIONS: Final[Mapping[str, Callable[[], str]]] = {
    **{f"keys of {name}": _block(name) for name in BLOCKS},
    **{f"state of {name}": _state(feature) for name, feature in _STATES.items()},
    "inputs": _role("input"),
    **{f"{kind_}s": _role(kind_) for kind_ in KINDS if kind_ not in ("filter", "route")},
    "outputs": _role("output"),
    "when checks pass": passing,
    "settings of checks": checks,
    "compatibility": compatibility,
    "reruns": reruns,
    "variables": variables,
    "what then does": meanings_of_then,
    "where then stands": thens,
    "helpers": helpers,
    "limits": limits,
    "diagnostics": diagnostics,
    "not built yet": unbuilt,
}
"""Each section of the page by its name."""
