"""JSON Schemas made ready: the one place that builds a validator.

A schema may come from anyone, so nothing that it names is ever fetched, neither
from a network nor from a disk, and its patterns run in linear time. The price is
that look-around and back-references are refused, as in `matches()` (facts §8).
`JsonSchema` is one that somebody else's values are judged by: it is also held to
what it can grow to (`schema_growth`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema_rs

from pipo.lang.schema_growth import TooMuch, growth
from pipo.payload import depth

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_REGEX: Final = 'is not a "regex"'
# A text longer than this is told in other words, and never cut: half a secret is one too.
_TEXT_LIMIT: Final = 300
# The steps that the words of a refusal may take.
_WORDS_LIMIT: Final = 100_000


def compiled(schema: Mapping[str, Any] | bool) -> jsonschema_rs.Draft202012Validator:
    """The validator of a schema, read as 2020-12 whatever its `$schema` says.

    Raises: Exception, when it is no JSON Schema; the library has several kinds
        without a base of their own.
    """
    plain = schema if isinstance(schema, bool) else {k: schema[k] for k in schema if k != "$schema"}
    return jsonschema_rs.Draft202012Validator(
        plain, offline=True, pattern_options=jsonschema_rs.RegexOptions()
    )


class BadSchema(ValueError):
    """A text that is no JSON Schema for others' values; the message says why."""


class JsonSchema:
    """A schema file, ready to judge values.

    Raises: BadSchema.
    """

    def __init__(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        try:
            schema = json.loads(raw, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BadSchema(str(error)[:200]) from None
        if not isinstance(schema, dict | bool):
            raise BadSchema("it must be an object or a boolean")
        try:
            self._validator = compiled(schema)
            grown = growth(schema)
        except TooMuch as error:
            raise BadSchema(str(error)) from None
        except RecursionError:
            raise BadSchema("it is nested too deeply") from None
        except Exception as error:
            raise BadSchema(_why(error)) from None
        self._depth_told = (
            math.log(_WORDS_LIMIT) / math.log(2 * grown.branches)
            if grown.branches > 1
            else math.inf
        )

    def fault(self, value: Any) -> str | None:
        """Why a value does not match, with the place in it, or None when it does.

        `value` is one that JSON can hold, without half surrogates.
        """
        if self._validator.is_valid(value):
            return None
        if depth(value) > self._depth_told:
            return "the data does not match; it is nested too deeply to say where"
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            where = _place(error.instance_path)
            rule = next((word for word in reversed(error.schema_path) if isinstance(word, str)), "")
            text = error.message
            if len(text) > _TEXT_LIMIT:
                text = f"the value breaks `{rule}`" if rule else "the value is not allowed"
            if len(where) > _TEXT_LIMIT:
                where = "somewhere in the data"
            return f"{where}: {text}"
        return None


def _place(path: Sequence[str | int]) -> str:
    """A place in the data, as an expression names it: `data.items[2].name`."""
    place = "data"
    for part in path:
        if isinstance(part, str) and _NAME.fullmatch(part):
            place += f".{part}"
        else:
            place += f"[{json.dumps(part, ensure_ascii=False)}]"
    return place


def _why(error: Exception) -> str:
    message = getattr(error, "message", "") or str(error) or type(error).__name__
    why = str(message).splitlines()[0][:200]
    # It runs in linear time, so some patterns that are right elsewhere are not here.
    limit = "; there is no look-around and no back-reference" if why.endswith(_NO_REGEX) else ""
    return why + limit


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
