"""What an http input answers: JSON bodies, and the status for what became of the packets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipo.connectors.contract import HttpAnswer, RefusedArrival
from pipo.payload import encode

RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where one packet of a request stands when it is answered.

    `state` is `accepted`, `rejected`, or, for a request that waited, how it ended.
    """

    packet_id: str
    state: str
    error: str = ""
    rule: str = ""

    def body(self) -> Mapping[str, Any]:
        made = {"packet_id": self.packet_id, "state": self.state}
        if self.error:
            made["error"] = self.error
        if self.state == "rejected":
            made["rule"] = self.rule
        return made


def refusal(status: int, error: str, hint: str, **headers: str) -> HttpAnswer:
    """An answer to a request that left nothing behind; header names are written with `_`."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpAnswer(status, _line({"error": error, "hint": hint}), named)


def too_large(limit: int) -> HttpAnswer:
    return refusal(
        413, f"the body is larger than {limit} bytes", "send less, or raise engine.packet_limit"
    )


def unavailable(refused: RefusedArrival) -> HttpAnswer:
    return refusal(503, refused.message, refused.hint, Retry_After=str(RETRY_AFTER_S))


def accepted(packet_id: str) -> HttpAnswer:
    """The answer for one accepted packet: by far the most common one."""
    return HttpAnswer(202, b'{"packet_id":"%s","state":"accepted"}\n' % packet_id.encode())


def for_packets(
    outcomes: Sequence[Outcome],
    refused: RefusedArrival | None,
    *,
    many: bool,
    waited: bool,
    reject_status: int,
) -> HttpAnswer:
    """The answer for packets of which at least one was accepted, rejected or refused.

    `many` is for a body of csv: a list, also for a single record (edge 90).
    """
    status = _status(outcomes, refused, waited=waited, reject_status=reject_status)
    if refused is not None and not _any_accepted(outcomes):
        return unavailable(refused)
    bodies = [outcome.body() for outcome in outcomes]
    body: Mapping[str, Any] = {"packets": bodies} if many else bodies[0]
    headers: list[tuple[str, str]] = []
    if refused is not None:
        body = {**body, "error": refused.message, "hint": refused.hint}
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    return HttpAnswer(status, _line(body), headers)


def _line(body: Mapping[str, Any]) -> bytes:
    """With a line end, so that a terminal's next prompt stands on a line of its own."""
    return encode(body) + b"\n"


def _status(
    outcomes: Sequence[Outcome],
    refused: RefusedArrival | None,
    *,
    waited: bool,
    reject_status: int,
) -> int:
    """The first that applies (edge 28)."""
    states = {outcome.state for outcome in outcomes}
    accepted = _any_accepted(outcomes)
    if refused is not None and not accepted:
        return 503
    if "rejected" in states and not accepted:
        return reject_status
    if refused is not None:
        return 503
    if "rejected" in states:
        return reject_status
    if "dead_lettered" in states:
        return 502
    if states & {"accepted", "escalated"}:
        return 202
    return 200 if waited else 202


def _any_accepted(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.state != "rejected" for outcome in outcomes)
