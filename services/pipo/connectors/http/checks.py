"""Looks at what a write left: `status` in the journal, `follow_up` with a GET.

A follow-up is a place of its own for each URL with its headers: whoever waits for the
same answer shares one request, and a slow one holds up no other. The checker bounds how
many looks run at once; an answer is read up to BODY_BYTES_MAX, also when it is packed.

Redirects are followed to the same host and port only (or from http to https there), so
that no header goes where the author did not send it, and nobody outside decides which
address inside is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from yarl import URL

from pipo import payload
from pipo.clock import Clock
from pipo.connectors.contract import (
    CheckContext,
    CheckError,
    Checks,
    ConnectorError,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.connectors.http import matching, outgoing, statuses
from pipo.connectors.http.bodies import text_of
from pipo.connectors.http.failures import redirect
from pipo.connectors.http.inflating import NotInflated, inflated
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.sending import Answer, NoAnswer, Sender

TIMEOUT_S = 5.0
BODY_BYTES_MAX = 1024 * 1024
REDIRECTS_MAX = 3
STORED = "the stored status"
_MATCH_SHOWN_CHARACTERS = 2048


def build(context: CheckContext) -> Checks:
    return HttpChecks(context.clock)


@dataclass(frozen=True)
class Found:
    """An answer to a follow-up, or why its body is of no use."""

    answer: Answer
    body: bytes
    unusable: str
    pause_s: float

    @cached_property
    def text(self) -> str:
        return text_of(self.body, self.answer.headers)

    @cached_property
    def json(self) -> tuple[Any, str]:
        """The body's value, and why it has none."""
        try:
            return payload.decode(self.body), ""
        except payload.BadPayload as error:
            return None, f"the body is no JSON: {error}"


class HttpChecks:
    """One pool of connections; it is made for the first follow-up."""

    def __init__(self, clock: Clock, *, timeout_s: float = TIMEOUT_S) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._sender = Sender(timeout_s=timeout_s)

    def place(self, target: Target) -> str:
        """What looks share, without a secret in it: it stands in logs."""
        if target.check == "status":
            return STORED
        asked = [target.settings.get(name) for name in ("url", "headers", "success")]
        digest = hashlib.sha256(repr(asked).encode("utf-8", "backslashreplace")).hexdigest()
        return f"{outgoing.origin(outgoing.shown(str(asked[0])))} #{digest[:16]}"

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        if place == STORED:
            return [_stored(target) for target in targets]
        try:
            found = await self._followed_up(targets[0])
        except (CheckError, NoAnswer) as error:
            return [CheckError(_with_hint(error))] * len(targets)
        return [Seen(found, _evidence(target, found)) for target in targets]

    def judge(self, target: Target, seen: Seen) -> Judgement:
        status = seen.value if target.check == "status" else seen.value.answer.status
        success = target.settings.get("success", statuses.DEFAULT)
        if not statuses.accepted(success, status):
            return _not_accepted(target, seen, status)
        if target.check == "status" or "match" not in target.settings:
            return Passed(seen.evidence)
        why = _unmatched(target.settings["match"], seen.value)
        return Pending(why, seen.evidence) if why else Passed(seen.evidence)

    async def close(self) -> None:
        await self._sender.close()

    async def _followed_up(self, target: Target) -> Found:
        """Raises: CheckError, NoAnswer."""
        try:
            request = outgoing.head({**target.settings, "method": "GET"}, None)
        except ConnectorError as error:
            raise CheckError(_with_hint(error)) from error
        await self._sender.open()
        try:
            # Redirects included: the checker gives up a look that takes longer.
            async with asyncio.timeout(self._timeout_s):
                return await self._asked(request, target)
        except TimeoutError as error:
            late = f"{request.shown} failed: no answer within {self._timeout_s:g} s"
            raise CheckError(late) from error

    async def _asked(self, request: Request, target: Target) -> Found:
        success = target.settings.get("success", statuses.DEFAULT)
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._sender.ask(request, body_limit=BODY_BYTES_MAX)
            onward = None if statuses.accepted(success, answer.status) else _onward(request, answer)
            if onward is None:
                return self._found(answer)
            request = onward
        raise CheckError(f"{request.shown}: more than {REDIRECTS_MAX} redirects")

    def _found(self, answer: Answer) -> Found:
        pause_s = statuses.pause_asked_s(answer.status, answer.headers, self._clock.now_ms())
        too_long = f"the body is longer than {BODY_BYTES_MAX} bytes: ask for less"
        try:
            body = inflated(answer.body, answer.headers.get("Content-Encoding", ""), BODY_BYTES_MAX)
            unusable = "" if answer.whole and len(body) <= BODY_BYTES_MAX else too_long
        except NotInflated as error:
            body, unusable = b"", str(error)
        return Found(answer, body, unusable, pause_s or 0.0)


def _stored(target: Target) -> Seen | CheckError:
    status = target.result.get("status") if isinstance(target.result, dict) else None
    if not isinstance(status, int):
        return CheckError("the write left no status to look at")
    return Seen(status, {"status": status})


def _evidence(target: Target, found: Found) -> dict[str, Any]:
    evidence = {
        "url": outgoing.shown(str(target.settings["url"])),
        "status": found.answer.status,
        "bytes": len(found.body),
    }
    if "match" in target.settings:
        match = target.settings["match"]
        evidence["match"] = match if _is_short(match) else matching.show(match)
    return evidence


def _is_short(value: Any) -> bool:
    return len(repr(value)) <= _MATCH_SHOWN_CHARACTERS


def _not_accepted(target: Target, seen: Seen, status: int) -> Pending:
    if target.check == "status":
        return Pending(f"the write was answered {status}, which does not count", seen.evidence)
    onward = redirect(seen.value.answer)
    why = f"GET {seen.evidence['url']} answered {status}{f'; {onward}' if onward else ''}"
    return Pending(why, seen.evidence, pause_s=seen.value.pause_s)


def _unmatched(match: Any, found: Found) -> str:
    """Why the body does not hold `match`; empty when it does.

    Raises: CheckError, for a body that cannot be compared.
    """
    if found.unusable:
        raise CheckError(found.unusable)
    if isinstance(match, str):
        return "" if match in found.text else f"the body does not contain {matching.show(match)}"
    value, fault = found.json
    return fault or matching.difference(match, value)


def _onward(request: Request, answer: Answer) -> Request | None:
    """The next request of a redirect that stays at its host; None for any other answer."""
    if not redirect(answer):
        return None
    try:
        url = request.url.join(URL(answer.headers["Location"]))
        if not _same_host(request.url, url):
            return None
    except ValueError:
        return None
    return Request("GET", url, request.headers, None, f"GET {outgoing.shown(str(url))}")


def _same_host(before: URL, after: URL) -> bool:
    if before.host != after.host:
        return False
    raised = before.scheme == "http" and after.scheme == "https"
    if raised and before.is_default_port() and after.is_default_port():
        return True
    return (before.scheme, before.port) == (after.scheme, after.port)


def _with_hint(error: ConnectorError) -> str:
    """A check's error is a text alone."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
