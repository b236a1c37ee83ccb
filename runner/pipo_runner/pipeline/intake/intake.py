"""Intake: from an arrival to a packet on disk.

Order of the gates: lifetime, run state, buffer, schema, rules, journal, answer (edge 1). Nothing
stands between the first and the journal that could let another arrival pass, and nothing
is answered before the commit that holds it. What was handed over before passes no
gate again: it has its packet (`inbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pipo.clock import Clock
from pipo.connectors.contract import (
    Accepted,
    Arrival,
    RejectedArrival,
    Settlement,
    Taken,
)
from pipo.errors import PipoError
from pipo.journal import changes as journaled
from pipo.journal.changes import Change, PacketError
from pipo.payload import BadPayload, encode
from pipo_runner.pipeline.definition.failures import Failure, packet_error
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.ids import PacketIds
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.intake.admission import Admission
from pipo_runner.pipeline.intake.inbox import Inbox, Key
from pipo_runner.pipeline.steps.splitting import as_journaled, copies_of

# Doors hold their bodies to the limit; base64 and field names make parsed data larger (decision 40).
PARSED_GROWTH: Final = 1.4

# A packet, with its copies where its input feeds several steps.
Born = tuple[Unit, list[Unit]]


class PipelineIntake:
    """What the inputs of one pipeline ask (contract.Intake)."""

    def __init__(
        self,
        *,
        journal: Ledger,
        admission: Admission,
        pending: Pending,
        plan: Callable[[], Plan],
        scopes: Scopes,
        ids: PacketIds,
        clock: Clock,
        enqueue: Callable[[Unit], None],
        next_queue_seq: int,
        packet_limit: int,
        redact: Callable[[str], str],
        input_state: Callable[[str], Awaitable[Mapping[str, str]]],
        inbox: Inbox,
        on_accepted: Callable[[int], None],
    ) -> None:
        self._journal = journal
        self._admission = admission
        self._pending = pending
        self._plan = plan
        self._scopes = scopes
        self._ids = ids
        self._clock = clock
        self._enqueue = enqueue
        self._queue_seq = next_queue_seq
        self._limit = packet_limit
        self._redact = redact
        self._input_state = input_state
        self._inbox = inbox
        self._on_accepted = on_accepted

    def next_place(self) -> int:
        """The last place in the queue, for a packet that moves again (design §4.2)."""
        place, self._queue_seq = self._queue_seq, self._queue_seq + 1
        return place

    async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        """What became of each arrival, in order (contract.Intake)."""
        keys = [key for arrival in arrivals if (key := _key_of(arrival)) is not None]
        known = await self._inbox.claim(keys) if keys else {}
        # The version is read once: one applied meanwhile counts for later packets (edge 11).
        plan, at = self._plan(), self._clock.now_ms()
        taken: list[Taken] = []
        changes: list[Change] = []
        units: list[Born] = []
        for arrival in arrivals:
            taken.append(self._take(arrival, known, plan, at, changes, units))
        if changes:
            durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Not tied to this wait: a sender that goes away leaves packets that go on.
            try:
                self._journal.submit(
                    *changes, done=lambda error: self._committed(units, keys, durable, error)
                )
            except PipoError:
                # The journal took nothing (too much waits for it, or it failed).
                self._admission.not_accepted(len(units))
                self._inbox.release(keys)
                raise
            await durable
        else:
            self._inbox.release(keys)
        return taken

    def _take(
        self,
        arrival: Arrival,
        known: dict[Key, Accepted],
        plan: Plan,
        at: int,
        changes: list[Change],
        units: list[Born],
    ) -> Taken:
        """One arrival before the gates; a packet that it makes joins `known`."""
        key = _key_of(arrival)
        if key is not None and key in known:
            return known[key]
        refusal = self._admission.reserve(arrival.input)
        taken = refusal or self._judge(arrival, plan, at, changes, units)
        if key is not None and isinstance(taken, Accepted):
            known[key] = replace(taken, duplicate=True)
        return taken

    def _committed(
        self,
        units: list[Born],
        keys: Sequence[Key],
        durable: asyncio.Future[None],
        error: BaseException | None,
    ) -> None:
        """The arrivals are on disk, or were refused by the journal as a whole."""
        self._inbox.release(keys)
        if error is not None:
            self._admission.not_accepted(len(units))
            if not durable.done():
                durable.set_exception(error)
            return
        now = self._clock.monotonic()
        for unit, copies in units:
            unit.accepted = now
            self._pending.add(unit)
            if copies:
                self._pending.split(unit, copies)
                for copy in copies:
                    self._enqueue(copy)
            else:
                self._enqueue(unit)
        if units:
            self._on_accepted(len(units))
        if not durable.done():
            durable.set_result(None)

    def _judge(
        self, arrival: Arrival, plan: Plan, at: int, changes: list[Change], units: list[Born]
    ) -> Taken:
        """One arrival that has a place: its change, and the unit if it is accepted."""
        packet_id = self._ids.next(at)
        way = plan.first_step[arrival.input]
        unit = Unit(
            id=packet_id,
            version=plan.version,
            input=arrival.input,
            trigger=arrival.trigger,
            source=arrival.source,
            received_at=at,
            queue_seq=self._queue_seq,
            cursor=way if isinstance(way, str) else "",
            data=arrival.data,
            size=0,
            upstream=arrival.upstream,
        )
        raw, failure = self._refusal(arrival, plan, unit)
        if failure is not None:
            self._admission.not_accepted()
            error = self._error(failure, plan, unit)
            changes.append(
                journaled.Rejected(
                    unit=packet_id,
                    version=plan.version,
                    input=arrival.input,
                    trigger=arrival.trigger,
                    source=arrival.source,
                    data=raw,
                    error=error,
                    at=at,
                    state=arrival.state,
                    escalate=_is_told(plan, arrival.input),
                    upstream=_upstream(arrival),
                )
            )
            return RejectedArrival(packet_id, error.message, failure.rule or "")
        unit.size = len(raw)
        self._queue_seq += 1
        copies = [] if isinstance(way, str) else copies_of(unit, way)
        units.append((unit, copies))
        changes.append(
            journaled.Accepted(
                unit=packet_id,
                version=plan.version,
                input=arrival.input,
                trigger=arrival.trigger,
                source=arrival.source,
                data=raw,
                cursor=unit.cursor,
                queue_seq=unit.queue_seq,
                at=at,
                state=arrival.state,
                key=arrival.key,
                upstream=_upstream(arrival),
                copies=as_journaled(copies) if copies else (),
            )
        )
        return Accepted(packet_id)

    def _refusal(self, arrival: Arrival, plan: Plan, unit: Unit) -> tuple[bytes, Failure | None]:
        """The payload as it is kept, and why the input's rules refuse it, if they do."""
        try:
            raw = encode(arrival.data)
        except BadPayload as error:
            return b"null", Failure("input.invalid", arrival.input, str(error), 1, rule="json")
        if len(raw) > self._limit * PARSED_GROWTH:
            message = (
                f"the packet has {len(raw)} bytes, more than {PARSED_GROWTH} times "
                f"engine.packet_limit ({self._limit})"
            )
            return b"null", Failure("input.invalid", arrival.input, message, 1, rule="size")
        schema = plan.input_schemas.get(arrival.input)
        if schema is not None and (why := schema.fault(arrival.data)) is not None:
            return raw, Failure("input.schema", arrival.input, f"schema: {why}", 1, rule="schema")
        rules = plan.input_rules[arrival.input]
        if not rules.rules:
            return raw, None
        meta = self._scopes.meta(unit, arrival.input)
        broken = rules.broken(self._scopes.rules(arrival.data, meta))
        if broken is None:
            return raw, None
        rule, message = broken
        return raw, Failure("input.invalid", arrival.input, message, 1, rule=rule)

    def _error(self, failure: Failure, plan: Plan, unit: Unit) -> PacketError:
        return packet_error(
            failure,
            plan.messages[f"input:{unit.input}"],
            lambda: self._scopes.rules(unit.data, self._scopes.meta(unit, unit.input)),
            self._redact,
        )

    async def settled(self, packet_id: str, timeout_s: float) -> Settlement:
        """How a packet ended (contract.Intake)."""
        return await self._pending.wait(packet_id, timeout_s)

    async def state(self, input_name: str) -> Mapping[str, str]:
        """An input's durable state (contract.Intake)."""
        return await self._input_state(input_name)

    async def remember(self, input_name: str, state: Mapping[str, str | None]) -> None:
        """Durable state of an input that no packet carries (contract.Intake)."""
        await self._journal.commit(journaled.InputMoved(input_name, state))


def _key_of(arrival: Arrival) -> Key | None:
    return None if arrival.key is None else (arrival.source, arrival.key)


def _upstream(arrival: Arrival) -> bytes | None:
    return None if arrival.upstream is None else encode(arrival.upstream)


def _is_told(plan: Plan, input_name: str) -> bool:
    """Whether whoever resolves packets hears of what this input rejects (edge 20)."""
    return any(
        one.name == input_name and one.on_invalid.then == "agent" for one in plan.pipeline.inputs
    )
