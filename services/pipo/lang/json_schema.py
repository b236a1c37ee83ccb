"""JSON Schemas made ready: the one place that builds a validator.

A schema may come from anyone, so nothing that it names is ever fetched, neither
from a network nor from a disk, and its patterns run in linear time. The price is
that look-around and back-references are refused, as in `matches()` (facts §8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs


def compiled(schema: Mapping[str, Any] | bool) -> jsonschema_rs.Draft202012Validator:
    """The validator of a schema, read as 2020-12 whatever its `$schema` says.

    Raises: Exception, when it is no JSON Schema; the library has several kinds
        without a base of their own.
    """
    plain = schema if isinstance(schema, bool) else {k: schema[k] for k in schema if k != "$schema"}
    return jsonschema_rs.Draft202012Validator(
        plain, offline=True, pattern_options=jsonschema_rs.RegexOptions()
    )
