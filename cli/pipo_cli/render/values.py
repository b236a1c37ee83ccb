"""`pipo eval`: a value of the language, and the place of a fault in its text."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from pipo.lang.missing import MISSING
from pipo.lang.printing import json_text, number_text
from pipo.lang.utf16 import SURROGATE
from pipo_cli.render.tables import width

EXCERPT_MAX: Final = 76
"""Characters of a line that an excerpt shows."""


def as_json(value: Any) -> str:
    """`{"value": …}`; `{"undefined": true}` and `{"number": "NaN"}` for what JSON cannot hold."""
    if value is MISSING:
        return json.dumps({"undefined": True})
    if name := _beside_json(value):
        return json.dumps({"number": name})
    return f'{{"value": {json_text(value)}}}'


def as_text(value: Any) -> str:
    """The value as JSON, or `undefined`, `NaN`, `Infinity`, `-Infinity`, `-0`."""
    return "undefined" if value is MISSING else _beside_json(value) or json_text(value)


def printed_text(text: str) -> str:
    """The text itself; half a surrogate pair, which no stream takes, as its escape."""
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def excerpt(text: str, position: int) -> list[str]:
    """The line of a text that a position stands in, and a caret below that place; none for an empty one.

    A long line is cut on both sides. What a terminal would obey is shown as a blank.
    """
    start = text.rfind("\n", 0, position) + 1
    line = text[start:].partition("\n")[0]
    at = position - start
    first = max(0, min(at - EXCERPT_MAX // 2, len(line) - EXCERPT_MAX))
    before, after = _plain(line[first:at]), _plain(line[at : first + EXCERPT_MAX])
    left = "..." if first else ""
    right = "..." if first + EXCERPT_MAX < len(line) else ""
    if not before + after.strip():
        return []
    return [f"  {left}{before}{after}{right}".rstrip(), "  " + " " * width(left + before) + "^"]


def _beside_json(value: Any) -> str:
    """The name of a number that JSON has none for; empty for every other value."""
    if not isinstance(value, float):
        return ""
    if value == 0 and math.copysign(1.0, value) < 0:
        return "-0"
    return "" if math.isfinite(value) else number_text(value)


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
