"""Values against JSON Schemas, with faults that a person can act on.

jsonschema-rs decides; this module finds the place of each fault in the file and
says what was read, what is wanted, and the way out. A text with a `${` may be
anything once rendered, so limits on its form do not apply, unless the schema
says that it takes no template (`x-literal`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jsonschema_rs

from pipo import durations
from pipo.durations import PATTERN as DURATION
from pipo.lang.document import Items, Key, Map, Node, Scalar, at_path, plain
from pipo.lang.json_schema import compiled
from pipo.lang.schema import NAME, NODE_ID, STATUS
from pipo.lang.suggest import one_of
from pipo.lang.templates import is_template

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a schema refuses; `path` leads to the value from the checked node."""

    at: Node | Key
    path: tuple[str | int, ...]
    message: str
    hint: str = ""


# A key costs a search for what was meant; who has mended that many looks again.
_UNKNOWN_SHOWN: Final = 50
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}
PATTERNS = {
    DURATION: "a duration such as 250ms, 10s, 5m, 1.5h, 7d",
    NAME: "lower-case letters, digits and `-`",
    NODE_ID: "letters, digits, `_` and `-`, with a letter or `_` first",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and `_`, with a letter or `_` first",
    r"^[a-z0-9][a-z0-9_-]*$": "lower-case letters, digits, `_` and `-`",
    r"^(op://|env:|file:/)": "a reference: env:NAME, file:/path or op://vault/item/field",
    r"^/": "a path that starts with `/`",
    r"^([01][0-9]|2[0-3]):[0-5][0-9]$": 'a time of day such as "06:30"',
    r"^[0-9A-Fa-f]{64}$": "64 hex digits",
    r"^[0-9]{1,3}%$": "a percentage such as 80%",
    STATUS: 'a status from 100 to 599 such as 204, "2xx" or "200-299"',
}
"""What a pattern asks for, in words."""
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "a list of at least {}",
    "maxItems": "a list of at most {}",
    "minProperties": "a map of at least {}",
    "maxProperties": "a map of at most {}",
    "minLength": "a text of at least {} characters",
    "maxLength": "a text of at most {} characters",
}
# A literal's words and form refuse a template already, as P038 does a schedule's text (`format`);
# a templated path is never looked at (P014).
JUDGED_ELSEWHERE = {"enum", "pattern", "format", "x-path"}
# What limits the form of a text, and so does not hold for one with a template.
FORM = ("pattern", "format", "minLength", "maxLength")
_SWITCH_WORDS = ("true", "false", "yes", "no", "on", "off", "y", "n")

_validators: dict[int, tuple[Schema, jsonschema_rs.Draft202012Validator]] = {}


def faults(schema: Schema, node: Node, label: str) -> list[Fault]:
    """All that the schema refuses in a node; `label` is what a message calls the node."""
    numbers = list(_endless(node, ()))
    bad = {id(fault.at) for fault in numbers}
    reader = _Reader(schema, node, label)
    found, data = reader.names_refused(schema, node, plain(node), ())
    found += [fault for error in _errors(schema, data) for fault in reader.faults(error)]
    found += reader.templates_refused(schema, node, ())
    found += reader.spans_refused(schema, node)
    return numbers + [fault for fault in found if id(fault.at) not in bad]


def literals(schema: Schema, node: Node) -> Iterator[Scalar]:
    """The texts inside a node that take no template, by their schema."""
    return (literal.text for literal in _literals(schema, node, ()))


def found(node: Node) -> str:
    """What was read, for a message."""
    match node:
        case Map():
            return "a map"
        case Items():
            return "a list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return node.written
        case Scalar(value=str()):
            text = node.value if len(node.value) <= 40 else f"{node.value[:37]}…"
            return f"the text {text!r}"
    return f"the number {node.written[:40]}"


def _errors(schema: Schema, data: Any) -> list[Any]:
    key = id(schema)
    if key not in _validators:
        # The schema is kept beside its validator, so its id stays its own.
        _validators[key] = (schema, compiled(schema))
    return list(_validators[key][1].iter_errors(data))


def _endless(node: Node, path: tuple[str | int, ...]) -> Iterator[Fault]:
    match node:
        case Scalar(value=float()) if not math.isfinite(node.value):
            yield Fault(node, path, f"{node.written[:40]} is no number that JSON can hold")
        case Map():
            for name, (_, value) in node.entries.items():
                yield from _endless(value, (*path, name))
        case Items():
            for index, item in enumerate(node.items):
                yield from _endless(item, (*path, index))


class _Literal(NamedTuple):
    text: Scalar
    path: tuple[str | int, ...]
    rule: Schema


def _literals(schema: Any, node: Node, path: tuple[str | int, ...]) -> Iterator[_Literal]:
    if not isinstance(schema, Mapping):
        return
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and schema.get("x-literal"):
            yield _Literal(node, path, schema)
    elif isinstance(node, Map):
        others = schema.get("additionalProperties")
        for name, (_, value) in node.entries.items():
            inner = schema.get("properties", {}).get(name, others)
            yield from _literals(inner, value, (*path, name))
    else:
        for index, item in enumerate(node.items):
            yield from _literals(schema.get("items"), item, (*path, index))
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _literals(branch, node, path)


class _Reader:
    """Turns the validator's errors into faults."""

    def __init__(self, schema: Schema, root: Node, label: str) -> None:
        self._schema = schema
        self._root = root
        self._label = label

    def faults(self, error: Any) -> list[Fault]:
        kind = error.kind.name
        path = tuple(error.instance_path)
        node = at_path(self._root, list(path))
        if kind in FORM and self._may_be_template(error, node):
            return []
        if kind == "minProperties" and len(_parts(node)) >= error.kind.value:
            # Its wrong names were taken out, and named each.
            return []
        match kind:
            case "additionalProperties":
                return self._unknown_keys(error, node, path)
            case "anyOf" | "oneOf":
                return self._alternatives(error, node, path)
        return [self._single(error, node, path)]

    def names_refused(
        self, schema: Any, node: Node, data: Any, path: tuple[str | int, ...]
    ) -> tuple[list[Fault], Any]:
        """Names of an author's map that break its rule, and the data without those entries.

        The validator would name them too, in a time that grows with their square.
        """
        if not isinstance(schema, Mapping):
            return [], data
        made: list[Fault] = []
        if isinstance(node, Items):
            kept = list(data)
            for index, item in enumerate(node.items):
                found, kept[index] = self.names_refused(
                    schema.get("items"), item, data[index], (*path, index)
                )
                made += found
            return made, kept
        if not isinstance(node, Map):
            return [], data
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        entries: dict[str, Any] = {}
        for name, (_, value) in node.entries.items():
            wrong = _errors(schema["propertyNames"], name) if "propertyNames" in schema else []
            if wrong:
                made.append(self._key_name(wrong[0], node, path))
                continue
            found, entries[name] = self.names_refused(
                properties.get(name, others), value, data[name], (*path, name)
            )
            made += found
        return made, entries

    def templates_refused(
        self, schema: Schema, node: Node, path: tuple[str | int, ...]
    ) -> list[Fault]:
        """Texts with a template where only a literal is taken and the form does not say so."""
        return [
            Fault(
                literal.text,
                literal.path,
                f"{self._name(literal.path)} takes no template, found {found(literal.text)}",
            )
            for literal in _literals(schema, node, path)
            if is_template(literal.text.value) and not literal.rule.keys() & JUDGED_ELSEWHERE
        ]

    def spans_refused(self, schema: Schema, node: Node) -> list[Fault]:
        """Durations of the right form that are too short, or beyond what a calendar holds."""
        made: list[Fault] = []
        for literal in _literals(schema, node, ()):
            limit = _span_limit(literal) if literal.rule.get("pattern") == DURATION else ""
            if limit:
                message = f"{self._name(literal.path)} takes {limit}, found {found(literal.text)}"
                hint = str(literal.rule.get("description", ""))
                made.append(Fault(literal.text, literal.path, message, hint))
        return made

    # ── one error ──

    def _single(self, error: Any, node: Node, path: tuple[str | int, ...]) -> Fault:
        kind = error.kind.name
        name, seen = self._name(path), found(node)
        match kind:
            case "required":
                return self._missing(error, node, path)
            case "type":
                wanted = " or ".join(_TYPES.get(t, t) for t in error.kind.types)
                wanted = PATTERNS.get(self._rule(error).get("pattern", ""), wanted)
                hint = _type_hint(error.kind.types, node, self._rule(error)) or self._description(
                    error
                )
                return Fault(node, path, f"{name} takes {wanted}, found {seen}", hint)
            case "enum":
                return self._choice(list(map(str, error.kind.options)), node, path)
            case "const":
                return Fault(
                    node, path, f"{name} must be {self._rule(error)['const']}, found {seen}"
                )
            case "pattern":
                wanted = PATTERNS.get(error.kind.pattern, f"a text like {error.kind.pattern}")
                hint = self._description(error)
                return Fault(node, path, f"{name} takes {wanted}, found {seen}", hint)
            case "uniqueItems":
                return Fault(node, path, f"{name} holds an item twice")
        if kind in _LIMITS:
            wanted = _LIMITS[kind].format(error.kind.value)
            shown = seen if isinstance(node, Scalar) else f"{len(_parts(node))}"
            hint = self._description(error)
            return Fault(node, path, f"{name} takes {wanted}, found {shown}", hint)
        return Fault(node, path, f"{name}: {error.message}")

    def _missing(self, error: Any, node: Node, path: tuple[str | int, ...]) -> Fault:
        key = error.kind.property
        rule = self._rule(error).get("properties", {}).get(key, {})
        owner = f" in {self._name(path)}" if path or self._label else ""
        return Fault(node, path, f"`{key}` is missing{owner}", rule.get("description", ""))

    def _choice(self, options: list[str], node: Node, path: tuple[str | int, ...]) -> Fault:
        message = f"{self._name(path)} cannot be {found(node)}"
        word = node.written if isinstance(node, Scalar) else ""
        return Fault(node, path, message, one_of(word, options, "it takes"))

    def _unknown_keys(self, error: Any, node: Node, path: tuple[str | int, ...]) -> list[Fault]:
        known = list(self._rule(error).get("properties", {}))
        owner = f" in {self._name(path)}" if path or self._label else ""
        made = []
        for name in error.kind.unexpected[:_UNKNOWN_SHOWN]:
            key = node.key(name) if isinstance(node, Map) else None
            hint = one_of(name, known, "it takes") if known else "it takes no settings"
            made.append(Fault(key or node, (*path, name), f"unknown key `{name}`{owner}", hint))
        return made

    def _key_name(self, error: Any, node: Node, path: tuple[str | int, ...]) -> Fault:
        name = str(error.instance)
        key = node.key(name) if isinstance(node, Map) else None
        pattern = getattr(error.kind, "pattern", "")
        wanted = PATTERNS.get(pattern, f"a text like {pattern}" if pattern else error.message)
        message = f"the name `{name[:60]}` in {self._name(path)} is not {wanted}"
        return Fault(key or node, (*path, name), message)

    def _alternatives(self, error: Any, node: Node, path: tuple[str | int, ...]) -> list[Fault]:
        branches = [list(branch) for branch in getattr(error.kind, "context", [])]
        fitting = [branch for branch in branches if not _is_of_wrong_type(branch, path)]
        if branches and not fitting:
            options = [t for branch in branches for t in branch[0].kind.types]
            wanted = " or ".join(_TYPES.get(t, t) for t in dict.fromkeys(options))
            message = f"{self._name(path)} takes {wanted}, found {found(node)}"
            return [Fault(node, path, message, self._description(error))]
        if all(each.kind.name == "required" for branch in fitting for each in branch):
            keys = " or ".join(f"`{each.kind.property}`" for b in fitting for each in b)
            return [Fault(node, path, f"{self._name(path)} needs {keys}")]
        made = [self.faults(each) for each in fitting[-1]]
        return [fault for several in made for fault in several]

    # ── words ──

    def _name(self, path: Sequence[str | int]) -> str:
        """What a message calls a value: its key, with indexes of a list."""
        keys = [step for step in path if isinstance(step, str)]
        if not keys:
            return self._label or "the file"
        at = len(path) - 1 - list(reversed(path)).index(keys[-1])
        return f"`{keys[-1]}{''.join(f'[{index}]' for index in path[at + 1 :])}`"

    def _rule(self, error: Any) -> Schema:
        """The schema whose keyword failed."""
        schema: Any = self._schema
        for step in error.schema_path[:-1]:
            try:
                schema = schema[step]
            except (KeyError, IndexError, TypeError):
                return {}
        found_rule: Schema = schema if isinstance(schema, Mapping) else {}
        return found_rule

    def _description(self, error: Any) -> str:
        return str(self._rule(error).get("description", ""))

    def _may_be_template(self, error: Any, node: Node) -> bool:
        is_template = isinstance(node, Scalar) and "${" in str(node.value)
        return is_template and not self._rule(error).get("x-literal")


def _span_limit(literal: _Literal) -> str:
    """The limit that a duration breaks; empty for one that keeps both, or is none."""
    text, least = literal.text.value, literal.rule.get("x-least")
    if durations.is_too_long(text):
        return f"at most {durations.LONGEST}"
    return f"at least {least}" if least and durations.is_shorter(text, least) else ""


def _is_of_wrong_type(branch: list[Any], path: tuple[str | int, ...]) -> bool:
    return any(e.kind.name == "type" and tuple(e.instance_path) == path for e in branch)


def _parts(node: Node) -> Sequence[Any]:
    return (
        node.items
        if isinstance(node, Items)
        else list(node.entries)
        if isinstance(node, Map)
        else ()
    )


def _type_hint(types: Sequence[str], node: Node, rule: Schema) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        return ""
    if not isinstance(node.value, str):
        is_free_text = "string" in types and not rule.keys() & set(FORM)
        return "put quotes around it, so that it is a text" if is_free_text else ""
    if "${" in node.value:
        return "no template is taken here"
    if "array" in types:
        return "make it a list: an item a line, each behind `- `"
    if "boolean" in types and node.value.lower() in _SWITCH_WORDS:
        return "write true or false, without quotes"
    if {"integer", "number"} & set(types) and node.value.strip().lstrip("+-").isdigit():
        return "write the number without quotes"
    return ""
