"""A packet's full trace: what happened to it, step by step.

A step is an event that changed the unit's state or place (it carries a state); every
other event is a note of the step that follows, and a `step.retry` one of its retries.
What follows no step yet stands among the events alone.
Source: edge 389-393, R012, R013.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pipo import payload
from pipo.journal import patches
from pipo.journal.changes import BATCH, DEAD_LETTERED, OUTPUT, REJECTED, SETTLED, VERIFY
from pipo.journal.rows import Row, Rows


@dataclass(frozen=True, slots=True)
class PacketError:
    code: str
    message: str
    rule: str | None
    node: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    at: int
    pipeline: str
    packet_id: str
    type: str
    node: str | None
    detail: bytes | None


@dataclass(frozen=True, slots=True)
class Retry:
    attempt: int
    wait_ms: float
    error: str


@dataclass(frozen=True, slots=True)
class Step:
    step: str | None
    event: str
    at: int
    ms: float | None
    data: bytes | None
    attempts: int
    retries: list[Retry]
    notes: list[Event]


@dataclass(frozen=True, slots=True)
class Packet:
    packet_id: str
    state: str
    node: str | None
    version: int
    attempt: int
    input: str
    trigger: str
    source: str
    received_at: int
    updated_at: int
    data: bytes | None
    result: bytes | None
    error: PacketError | None
    evidence: bytes | None
    upstream: bytes | None


@dataclass(frozen=True, slots=True)
class Copy:
    id: str
    branch: str
    state: str
    steps: list[Step]
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Trace:
    """`packet` is None for one that was purged; its record is among the events."""

    packet: Packet | None
    steps: list[Step]
    events: list[Event]
    copies: list[Copy]


UNIT: Final = """
SELECT id, branch, state, cursor, version, attempt, input, trigger, source, received_at,
    updated_at, error, CAST(result AS BLOB), CAST(data AS BLOB), CAST(upstream AS BLOB)
FROM units WHERE id = ? OR root = ? ORDER BY root IS NOT NULL, id
"""
EVENTS: Final = """
SELECT seq, at, unit, type, node, state, CAST(detail AS BLOB), patch,
    (SELECT value FROM meta WHERE key = 'pipeline')
FROM events
WHERE unit = ?1 OR unit IN (SELECT id FROM units WHERE root = ?1)
ORDER BY seq
"""

_TAKEN_IN: Final = frozenset({"packet.accepted", "packet.rejected"})
_BORN: Final = _TAKEN_IN | {"packet.branched"}
_RETRY: Final = "step.retry"
_BATCHED: Final = "output.batched"
_EVIDENCE: Final = frozenset({"packet.delivered", "delivery.unverified"})


async def trace(rows: Rows, packet_id: str) -> Trace | None:
    """A packet's trace, with its copies; None for an id the journal does not know."""
    units, events = await rows.together((UNIT, (packet_id, packet_id)), (EVENTS, (packet_id,)))
    if not units and not events:
        return None
    of: dict[str, list[Row]] = {}
    for event in events:
        of.setdefault(event[2], []).append(event)
    own = of.get(packet_id, [])
    root = next((unit for unit in units if unit[0] == packet_id), None)
    if root is None:
        return Trace(None, [], [_event(row) for row in own], [])
    walk = _Walk(root[13], own)
    return Trace(
        packet=_packet(root, walk, own),
        steps=walk.steps,
        events=[_event(row) for row in own],
        copies=[
            Copy(
                id=unit[0],
                branch=unit[1],
                state=unit[2],
                steps=_Walk(unit[13], of.get(unit[0], [])).steps,
                events=[_event(row) for row in of.get(unit[0], [])],
            )
            for unit in units
            if unit[0] != packet_id
        ],
    )


class _Walk:
    """One unit's events, gone through once: its steps, and its data as it stands now.

    Data that is damaged in the journal is left out from there on, as cleared data is.
    """

    def __init__(self, birth: bytes | None, events: Sequence[Row]) -> None:
        self.data = birth if birth is not None and _whole(birth) else None
        self.steps: list[Step] = []
        self._value: Any = None
        self._folding = False
        self._batched = False
        retries: list[Retry] = []
        notes: list[Event] = []
        before: int | None = None
        for row in events:
            _, at, _, type_, node, state, detail, patch, _ = row
            if type_ == _RETRY:
                retries.append(_retry(detail))
            elif state is None:
                notes.append(_event(row))
            else:
                self.steps.append(
                    Step(
                        step=self._name(type_, node),
                        event=type_,
                        at=at,
                        ms=None if before is None else float(at - before),
                        data=birth if type_ in _BORN else self._fold(patch),
                        attempts=_attempts(detail, len(retries) + 1 + _holds(notes)),
                        retries=retries,
                        notes=notes,
                    )
                )
                before, retries, notes = at, [], []

    def _name(self, type_: str, node: str | None) -> str | None:
        """`input`, a node id, `$output`, `$batch` or `$verify`; None where copies settled it."""
        if type_ in _TAKEN_IN:
            return "input"
        if type_ == _BATCHED:
            self._batched = True
        if node == "output":
            return BATCH if self._batched else OUTPUT
        return VERIFY if node == "delivered" else node

    def _fold(self, patch: str | None) -> bytes | None:
        """The data after a step's patch; None where it left the data as it was."""
        if patch is None or self.data is None:
            return None
        if not self._folding:
            self._value, self._folding = msgspec.json.decode(self.data), True
        try:
            self._value = patches.step(self._value, patch)
        except patches.MISFITS:
            self.data = None
        else:
            self.data = payload.encode(self._value)
        return self.data


def _whole(text: bytes) -> bool:
    """Whether a stored payload is still JSON."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def error_of(text: str | None) -> PacketError | None:
    """A row's error."""
    if text is None:
        return None
    found = msgspec.json.decode(text)
    return PacketError(
        found["code"], found["message"], found["rule"], found["node"], found["attempts"]
    )


def node_shown(state: str, cursor: str | None, error: PacketError | None) -> str | None:
    """Where a listing says a packet is: its cursor, the step it failed at, or nowhere."""
    if state not in SETTLED:
        return cursor
    return error.node if error is not None and state in (DEAD_LETTERED, REJECTED) else None


def _packet(unit: Row, walk: _Walk, events: Sequence[Row]) -> Packet:
    id_, _, state, cursor, version, attempt, input_, trigger, source = unit[:9]
    received_at, updated_at, error_text, result, _, upstream = unit[9:]
    error = error_of(error_text)
    return Packet(
        packet_id=id_,
        state=state,
        node=node_shown(state, cursor, error),
        version=version,
        attempt=attempt,
        input=input_,
        trigger=trigger,
        source=source,
        received_at=received_at,
        updated_at=updated_at,
        data=walk.data,
        result=result,
        error=error,
        evidence=_evidence(events),
        upstream=upstream,
    )


def _evidence(events: Iterable[Row]) -> bytes | None:
    """What the newest check saw."""
    seen = None
    for row in events:
        if row[3] in _EVIDENCE and row[6] is not None:
            detail = msgspec.json.decode(row[6], type=dict[str, msgspec.Raw])
            if "evidence" in detail:
                seen = bytes(detail["evidence"])
    return seen


def _event(row: Row) -> Event:
    seq, at, unit, type_, node, _, detail, _, pipeline = row
    return Event(seq, at, pipeline, unit, type_, node, detail)


def _retry(detail: bytes) -> Retry:
    found = msgspec.json.decode(detail)
    return Retry(found["attempt"], float(found["wait"]), found["error"])


def _holds(notes: Sequence[Event]) -> int:
    """How often the step failed for good and was held, to begin anew after a pause."""
    return sum(note.type == "packet.held" for note in notes)


def _attempts(detail: bytes | None, counted: int) -> int:
    """How often a step ran: as its error says, or one more than those that failed."""
    if detail is not None:
        found = msgspec.json.decode(detail)
        if isinstance(found, Mapping) and isinstance(found.get("attempts"), int):
            return int(found["attempts"])
    return counted
