"""The words that manifests are written in: JSON Schema 2020-12, and nothing else.

`closed` makes the object of a `with:` block; the others make its properties. A
string is a template unless it is made by a function that says it is literal
(`x-literal`). `PATH` properties are resolved by the runner (`x-path`).
"""

from __future__ import annotations

from typing import Any

from pipo.connectors.contract import Schema
from pipo.durations import PATTERN as DURATION
from pipo.lang.schema import STATUS

Property = dict[str, Any]

SQL_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
PIPELINE_NAME = r"^[a-z0-9][a-z0-9-]*$"
BOT_NAME = r"^[a-z0-9][a-z0-9_-]*$"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

KEEPS_KEYS: Property = {"x-keep-keys": True}
"""For a map in which a missing value becomes null: a row has that column in any case."""

KEEPS_ALL_KEYS: Property = {"x-keep-keys": "deep"}
"""The same at any depth, and for the whole value: what is expected never becomes less."""

_NO_DEFAULT: Any = object()


def closed(*, required: tuple[str, ...] = (), **properties: Property) -> dict[str, Any]:
    """An object that takes the named properties and no others.

    A trailing underscore of a name is dropped, so that `from_` makes `from`.
    """
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name.rstrip("_"): made for name, made in properties.items()},
    }
    if required:
        schema["required"] = list(required)
    return schema


NOTHING: Schema = closed()
"""A `with:` that takes no settings."""


def text(description: str, *, default: Any = _NO_DEFAULT, **limits: Any) -> Property:
    """A string that may be a template."""
    return _property({"type": "string", **limits}, description, default)


def literal(description: str, *, default: Any = _NO_DEFAULT, **limits: Any) -> Property:
    """A string that takes no template."""
    return _property({"type": "string", "x-literal": True, **limits}, description, default)


def path(description: str, *, default: Any = _NO_DEFAULT) -> Property:
    """A path relative to the pipeline's file; it may be a template."""
    return _property({"type": "string", "x-path": True}, description, default)


def path_or_url(description: str) -> Property:
    """A path as above, or an http(s) address, which stays as it is."""
    return _property({"type": "string", "x-path": "or-url"}, description, _NO_DEFAULT)


def program(description: str, **limits: Any) -> Property:
    """A path as above, or a name without a `/`, which stays as it is."""
    return _property({"type": "string", "x-path": "or-name", **limits}, description, _NO_DEFAULT)


def paths_below(key: str, description: str, **limits: Any) -> Property:
    """Paths relative to the path `key` of the same `with:`; they may be templates."""
    return list_of({"type": "string", "x-path": True}, description, **{"x-base": key}, **limits)


def literal_path(description: str) -> Property:
    """A path relative to the pipeline's file that takes no template."""
    return _property({"type": "string", "x-path": True, "x-literal": True}, description)


def choice(description: str, *values: str, default: Any = _NO_DEFAULT) -> Property:
    """One of the given words."""
    return _property({"enum": list(values), "x-literal": True}, description, default)


def choices(description: str, *values: str, default: list[str]) -> Property:
    """A list of the given words, each at most once."""
    items = {"enum": list(values), "x-literal": True}
    return _property({"type": "array", "items": items, "uniqueItems": True}, description, default)


def duration(description: str, *, default: Any = _NO_DEFAULT, least: str | None = None) -> Property:
    """A duration such as `250ms`, `1.5h`, not shorter than `least`."""
    limits = {"x-least": least} if least else {}
    return literal(description, default=default, pattern=DURATION, **limits)


def integer(description: str, *, default: Any = _NO_DEFAULT, **limits: Any) -> Property:
    return _property({"type": "integer", **limits}, description, default)


def boolean(description: str, *, default: Any = _NO_DEFAULT) -> Property:
    return _property({"type": "boolean"}, description, default)


def anything(description: str, *, default: Any = _NO_DEFAULT) -> Property:
    """Any value; the strings inside are templates."""
    return _property({}, description, default)


def list_of(items: Property, description: str, **more: Any) -> Property:
    """A list; `default` and limits such as `minItems` may follow."""
    default = more.pop("default", _NO_DEFAULT)
    return _property({"type": "array", "items": items, **more}, description, default)


def map_of(values: Property, description: str, **limits: Any) -> Property:
    """An object whose keys are the author's."""
    return _property({"type": "object", "additionalProperties": values, **limits}, description)


def statuses(description: str) -> Property:
    """HTTP statuses: `204`, `"2xx"`, `"200-299"`, or a list of such (edge 196)."""
    one: list[Schema] = [
        integer("A status.", minimum=100, maximum=599),
        literal("A status, a class or a range.", pattern=STATUS),
    ]
    many = {"type": "array", "items": {"anyOf": one}}
    return _property({"anyOf": [*one, many]}, description, "2xx")


def _property(schema: dict[str, Any], description: str, default: Any = _NO_DEFAULT) -> Property:
    made = {**schema, "description": description}
    if default is not _NO_DEFAULT:
        made["default"] = default
    return made
