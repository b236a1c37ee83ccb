"""Which statuses count as success, and how long an answer asks to wait. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from pipo.connectors.contract import Refused

DEFAULT = "2xx"
# The answers whose `Retry-After` is a request to come back later (decision 41).
ASKS_FOR_A_PAUSE = frozenset({429, 503})

_FORM = re.compile(r"([1-5])xx|([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_SECONDS_MAX = 1e9


def accepted(success: Any, status: int) -> bool:
    """Whether a status is in a `success`: a number, a class, a range or a list of them.

    An empty list means the default.
    Raises: Refused, for a form that is none of these.
    Source: edges 196, 197.
    """
    forms = success if isinstance(success, list) else [success]
    # All are read, so that a form that is none is found whatever stands before it.
    held = [_holds(form, status) for form in forms or [DEFAULT]]
    return any(held)


def _holds(form: Any, status: int) -> bool:
    found = None if isinstance(form, bool) else _FORM.fullmatch(str(form).strip())
    if found is None:
        raise Refused(
            f"`success` holds {form!r}, which is no status",
            hint='write a status such as 201, a class such as "2xx" or a range such as "200-299"',
        )
    hundreds, first, last = found.groups()
    if hundreds:
        return status // 100 == int(hundreds)
    return int(first) <= status <= int(last or first)


def pause_asked_s(status: int, headers: Mapping[str, str], now_ms: int) -> float | None:
    """The seconds that an answer asks to wait; None when it asks for none or for nonsense.

    A date counts from the answer's own `Date`, so that two clocks need not agree; without one
    from the second that `now_ms` lies in, since dates know whole seconds only.
    Source: RFC 9110 section 10.2.3, decision 41.
    """
    asked = headers.get("Retry-After", "").strip()
    if status not in ASKS_FOR_A_PAUSE or not asked:
        return None
    if _SECONDS.fullmatch(asked):
        return min(float(asked), _SECONDS_MAX)
    until = _date_s(asked)
    if until is None:
        return None
    sent = _date_s(headers.get("Date", ""))
    left = until - (now_ms // 1000 if sent is None else sent)
    return min(left, _SECONDS_MAX) if left >= 0 else None


def _date_s(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
