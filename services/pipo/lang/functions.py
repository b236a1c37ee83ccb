"""The helpers that expressions may call, in one table.

A helper takes as many arguments as it names; spare ones are evaluated and
ignored, missing ones are MISSING (facts §5.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import re2

from pipo import durations
from pipo.clock import Clock
from pipo.lang.faults import LanguageError
from pipo.lang.missing import MISSING
from pipo.lang.printing import json_text
from pipo.lang.utf16 import units
from pipo.lang.values import WHITE_SPACE, number, type_name

PATTERN_LIMIT: Final = 200
TIME_LIMIT_MS: Final = 8.64e15
"""The last moment that JavaScript's dates reach."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_QUIET = re2.Options()
_QUIET.log_errors = False


@dataclass(frozen=True, slots=True)
class Helper:
    """One helper; `arity` is how many arguments `call` takes, behind the clock if it is timed."""

    name: str
    arity: int
    call: Callable[..., Any]
    summary: str
    timed: bool = False


def exists(value: Any) -> bool:
    return value is not None and value is not MISSING


def length(value: Any) -> int:
    if isinstance(value, str):
        return units(value)
    if isinstance(value, list | dict):
        return len(value)
    if exists(value):
        raise LanguageError("runtime", f"len() takes no {type_name(value)}")
    return 0


def size(value: Any) -> int:
    if value is MISSING:
        return 0
    text = value if isinstance(value, str) else json_text(value)
    # Half a surrogate pair is sent as U+FFFD, three bytes as well.
    return len(text.encode("utf-8", "surrogatepass"))


def lower(value: Any) -> Any:
    return (value if value.__class__ is str else _text("lower", value)).lower()


def upper(value: Any) -> Any:
    return (value if value.__class__ is str else _text("upper", value)).upper()


def trim(value: Any) -> Any:
    return (value if value.__class__ is str else _text("trim", value)).strip(WHITE_SPACE)


def matches(value: Any, pattern: Any) -> bool:
    text, source = _text("matches", value), _text("matches", pattern)
    try:
        return _compiled(source).search(text) is not None
    except UnicodeEncodeError:
        raise LanguageError("runtime", "matches() takes no half of a surrogate pair") from None


def default(value: Any, other: Any) -> Any:
    return other if value is None or value is MISSING else value


def json(value: Any) -> Any:
    return MISSING if value is MISSING else json_text(value)


def now(clock: Clock) -> int:
    return clock.now_ms()


def iso(clock: Clock, moment: Any) -> str:
    """A moment as `YYYY-MM-DDTHH:mm:ss.sssZ`; years beyond 0–9999 get a sign and six digits."""
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        moment = clock.now_ms()
    if not -TIME_LIMIT_MS <= moment <= TIME_LIMIT_MS:
        raise LanguageError("runtime", f"iso() takes no moment such as {moment!r}"[:100])
    whole_ms = math.trunc(moment)
    # The Gregorian calendar repeats after 400 years.
    cycles, rest_ms = divmod(whole_ms, _CYCLE_MS)
    at = _EPOCH + timedelta(milliseconds=rest_ms)
    year = at.year + 400 * cycles
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{shown}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


_CYCLE_MS = 146_097 * 86_400_000


def duration(value: Any) -> int | float:
    try:
        return number(durations.parse(_text("duration", value).strip(WHITE_SPACE)))
    except ValueError as error:
        raise LanguageError("runtime", str(error)) from None


def _text(helper: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise LanguageError("runtime", f"{helper}() takes a string, not {_with_article(value)}")


def _with_article(value: Any) -> str:
    if value is MISSING:
        return "a missing value"
    name = type_name(value)
    return name if name == "null" else f"{'an' if name[0] in 'ao' else 'a'} {name}"


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    """A pattern ready to search with; linear in the text, whatever it says.

    Raises: LanguageError, for one that is too long or not RE2's.
    """
    if units(pattern) > PATTERN_LIMIT:
        raise LanguageError("runtime", f"the pattern has over {PATTERN_LIMIT} characters")
    try:
        return re2.compile(pattern, _QUIET)
    except re2.error as error:
        reason = error.args[0] if error.args else "it does not parse"
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise LanguageError(
            "runtime",
            f"bad pattern {pattern!r}: {reason}",
            hint="patterns are RE2's: no look-around, no back-references",
        ) from None
    except UnicodeEncodeError:
        raise LanguageError("runtime", "the pattern holds half of a surrogate pair") from None


HELPERS: Final = {
    helper.name: helper
    for helper in (
        Helper("exists", 1, exists, "whether x is neither null nor missing"),
        Helper("len", 1, length, "UTF-16 units, items or keys of x; 0 for null or missing"),
        Helper("size", 1, size, "UTF-8 bytes of a text, else of its JSON; 0 for missing"),
        Helper(
            "type",
            1,
            type_name,
            "the kind of x: string, number, boolean, null, undefined, array or object",
        ),
        Helper("lower", 1, lower, "the text x in lower case"),
        Helper("upper", 1, upper, "the text x in upper case"),
        Helper("trim", 1, trim, "the text x without blanks around it"),
        Helper("matches", 2, matches, "whether the RE2 pattern y is found anywhere in the text x"),
        Helper("default", 2, default, "y when x is null or missing, else x"),
        Helper("json", 1, json, "x as JSON text; missing for missing"),
        Helper("now", 0, now, "the time, in milliseconds since 1970", timed=True),
        Helper(
            "iso", 1, iso, "the time x (now, without one) as 2026-01-31T08:30:00.000Z", timed=True
        ),
        Helper("duration", 1, duration, "a text such as 5m, in milliseconds"),
    )
}
