"""What an answer outside `success` is to whoever sent the request. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from pipo.connectors.contract import RetryAfter, WriteFailed
from pipo.connectors.http.outgoing import Request, shown
from pipo.connectors.http.sending import Answer
from pipo.connectors.http.statuses import pause_asked_s

EXCERPT_CHARACTERS = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNSHOWN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def failure(
    request: Request, answer: Answer, *, mask: Callable[[str], str], now_ms: int
) -> WriteFailed | RetryAfter:
    """The error of a status that does not count as success (edge 109).

    It is a RetryAfter where the receiver asked for a pause (decision 41).
    """
    told = excerpt(answer, mask)
    message = f"{request.shown} answered {answer.status}{f': {told}' if told else ''}"
    pause_s = pause_asked_s(answer.status, answer.headers, now_ms)
    if pause_s is not None:
        return RetryAfter(message, seconds=pause_s, hint=f"it asks for a pause of {pause_s:g} s")
    return WriteFailed(message, hint=redirect(answer))


def excerpt(answer: Answer, mask: Callable[[str], str]) -> str:
    """The start of a body, on one line. It is masked before it is cut."""
    coding = answer.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        return f"a body in {coding[:20]}" if answer.body else ""
    words = _UNSHOWN.sub(" ", mask(answer.body.decode("utf-8", "replace"))).strip()
    cut = len(words) > EXCERPT_CHARACTERS
    return words[: EXCERPT_CHARACTERS - 1] + "…" if cut else words


def redirect(answer: Answer) -> str:
    """Where an answer sends to, for people; empty when it does not."""
    where = answer.headers.get("Location", "")
    if answer.status not in _REDIRECTS or not where:
        return ""
    return f"it redirects to {shown(where)}; name that address in `url`"
