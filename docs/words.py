"""Markdown tables, and what a JSON Schema asks for in the words of the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pipo.durations import PATTERN as DURATION
from pipo.lang.validation import PATTERNS

Schema = Mapping[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(c) for c in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def code(value: Any) -> str:
    """A value as it is written in a file."""
    text = value if value and isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`"


def codes_of(values: Iterable[Any]) -> str:
    return " ".join(code(value) for value in values)


_TYPES: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
}


def kind(made: Schema) -> str:
    """What a key takes, with its limits."""
    if "const" in made:
        return code(made["const"])
    if "enum" in made:
        return codes_of(made["enum"])
    if "anyOf" in made and "type" not in made:
        return _any_kind(made["anyOf"])
    limits = ", ".join(_limits(made))
    return f"{_plain_kind(made)}, {limits}" if limits else _plain_kind(made)


def _any_kind(choices: Sequence[Schema]) -> str:
    single = [kind(one) for one in choices if one.get("type") != "array"]
    words = (", or " if any("," in one for one in single) else " or ").join(dict.fromkeys(single))
    for one in choices:
        if one.get("type") == "array":
            limits = "".join(f", {limit}" for limit in _limits(one))
            words += f", or a list of them{limits}"
    return words


def _plain_kind(made: Schema) -> str:
    match made.get("type"):
        case None:
            return "any value"
        case "string" if made.get("pattern") == DURATION:
            return "duration"
        case "string" if made.get("x-path") == "or-name":
            return "name or path"
        case "string":
            return "path" if made.get("x-path") else "text"
        case "array":
            return f"list of {_plural(kind(made['items']))}"
        case "object":
            return _map_kind(made)
        case other:
            return _TYPES[str(other)]


def _map_kind(made: Schema) -> str:
    values = made.get("additionalProperties")
    if isinstance(values, Mapping) and "properties" not in values:
        return f"map of names to {_plural(kind(values))}"
    return "map" if values is None else "map of blocks" if values else "block"


def _plural(words: str) -> str:
    first, comma, rest = words.partition(",")
    irregular = {"any value": "values"}
    return irregular.get(first, first if first.endswith("`") else f"{first}s") + comma + rest


def _limits(made: Schema) -> Iterator[str]:
    low, high = made.get("minimum"), made.get("maximum")
    if low is not None and high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"at least {low}"
    if made.get("minItems") or made.get("minProperties"):
        yield "not empty"
    if made.get("minLength"):
        yield "not empty"
    if made.get("maxLength"):
        yield f"at most {made['maxLength']} characters"
    if made.get("x-least"):
        yield f"at least {made['x-least']}"
    if made.get("uniqueItems"):
        yield "each once"
    pattern = made.get("pattern", DURATION)
    if pattern != DURATION:
        yield PATTERNS.get(pattern, f"like `{pattern}`")


def takes_template(made: Schema) -> bool:
    """Whether a string somewhere in the value is a template."""
    if made.get("x-literal") or "enum" in made or made.get("type") in ("integer", "boolean"):
        return False
    if "anyOf" in made and "type" not in made:
        return any(takes_template(one) for one in made["anyOf"])
    inner = made.get("items", made.get("additionalProperties"))
    return takes_template(inner) if isinstance(inner, Mapping) else True


def shown_default(made: Schema, is_required: bool) -> str:
    if is_required:
        return "required"
    return code(made["default"]) if "default" in made else ""
