"""One verification in the checker's hands, and what each look makes of it. No I/O, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pipo import payload
from pipo.connectors.contract import CheckError, Impossible, Judgement, Passed, Pending, Target
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_checker import rhythm
from pipo_checker.rhythm import Rhythm

MESSAGE_CHARS_MAX = 8 * 1024
EVIDENCE_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class Held:
    """A verification between its offer and its verdict.

    `spent_ms` is what of `within` had passed before it came here. `gone` is set when it
    was withdrawn or its stream ended; a look under way is then forgotten. `news` is what the
    last look was told to wait for.
    """

    id: str
    target: Target
    rhythm: Rhythm
    taken: float
    spent_ms: int
    attempts: int = 0
    why: str = ""
    last_error: str = ""
    errored: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)
    gone: bool = False
    news: asyncio.Future[None] | None = None
    place: int | None = None
    """Its place in its lane's line; None outside of it."""


def settle(held: Held, found: Judgement | CheckError, finished: float, at: str) -> Verdict | float:
    """The verdict after one more look, or when the next look is due.

    `finished` is the monotonic time at which the look ended, `at` the same as text for
    the evidence.
    """
    held.attempts += 1
    held.errored = isinstance(found, CheckError)
    pause_s, held.news = 0.0, None
    match found:
        case Passed():
            held.evidence = found.evidence
            return _verdict(held, Verdict.OUTCOME_PASSED, "", finished, at)
        case Impossible():
            held.evidence = found.evidence
            return _verdict(held, Verdict.OUTCOME_REFUSED, found.why, finished, at)
        case Pending():
            held.evidence = found.evidence
            held.why, held.news = found.why, found.news
            pause_s = found.pause_s if found.news is None else inf
        case CheckError():
            held.last_error = found.message
    due = rhythm.next_look(held.rhythm, finished, pause_s)
    if due is not None:
        return due
    # An error outlives later looks that could run (edge 205).
    return _verdict(held, Verdict.OUTCOME_FAILED, held.last_error or held.why, finished, at)


def refusal(id: str, why: str) -> Verdict:
    """The verdict on a verification that cannot be looked at at all."""
    return Verdict(
        id=id,
        outcome=Verdict.OUTCOME_REFUSED,
        message=_cut(why),
        evidence=b"{}",
    )


def _verdict(
    held: Held, outcome: Verdict.Outcome.ValueType, message: str, finished: float, at: str
) -> Verdict:
    return Verdict(
        id=held.id,
        outcome=outcome,
        message=_cut(message),
        attempts=held.attempts,
        evidence=_evidence(held.evidence, at),
        elapsed_ms=held.spent_ms + max(0, int((finished - held.taken) * 1000)),
        errored=held.errored,
    )


def _evidence(evidence: Mapping[str, Any], at: str) -> bytes:
    """The evidence as JSON; one that is too long, or no JSON, says so in its place."""
    try:
        encoded = payload.encode({**evidence, "at": at})
    except payload.BadPayload as error:
        return payload.encode({"withheld": str(error), "at": at})
    if len(encoded) > EVIDENCE_BYTES_MAX:
        return payload.encode({"withheld": f"{len(encoded)} bytes of evidence", "at": at})
    return encoded


def _cut(text: str) -> str:
    """Text that fits a message; a path's undecodable bytes are shown, not sent."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
