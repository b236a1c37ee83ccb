"""From an arrival to a packet on disk: the gates, and nothing told too early."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pipo.connectors.contract import Accepted, RefusedArrival, RejectedArrival, Settlement
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo.journal import reads
from tests.unit.runner.pipeline.rig import PLAIN, TABLE, Rig, edition_of, quiet

RULED = f"""
input:
  via: push
  validate: ["data.age >= 18", "size(data.name) > 1"]
  on_invalid: {{ message: "no: ${{error.rule}} for ${{data.name}}" }}
output: {{ from: input, {TABLE} }}
"""


def with_buffer(size: int) -> str:
    return f"{PLAIN}buffer: {{ max: {size} }}\n"


def message(rig: Rig, data: Any) -> asyncio.Task[list[Any]]:
    return asyncio.create_task(rig.parts.intake.take([rig.arrival(data)]), name="a sender")


async def test_nobody_is_answered_before_the_commit_is_durable() -> None:
    rig = Rig()
    sender = message(rig, {"n": 1})
    await quiet()
    assert rig.journal.names() == ["Accepted"]
    assert not sender.done()
    assert rig.output.writes == []
    assert len(rig.parts.pending) == 0
    await rig.journal.land()
    (taken,) = await sender
    assert isinstance(taken, Accepted)
    assert rig.output.written == [taken.packet_id]


async def test_a_rejection_too_is_answered_once_it_is_on_disk() -> None:
    rig = Rig(RULED)
    sender = message(rig, {"age": 3, "name": "Bo"})
    await quiet()
    assert not sender.done()
    await rig.journal.land()
    (taken,) = await sender
    assert isinstance(taken, RejectedArrival)
    assert taken.rule == "data.age >= 18"
    assert taken.message == "no: data.age >= 18 for Bo"
    (change,) = rig.journal.of(journaled.Rejected)
    assert (change.error.code, change.error.node) == ("input.invalid", "input")
    assert change.data == b'{"age":3,"name":"Bo"}'
    assert rig.output.writes == []


async def test_a_sender_that_leaves_loses_nothing() -> None:
    rig = Rig()
    sender = message(rig, {"n": 1})
    await quiet()
    sender.cancel()
    await quiet()
    await rig.settle()
    assert rig.journal.names() == ["Accepted", "Writing", "Written", "Delivered"]
    assert len(rig.parts.pending) == 0


@pytest.mark.parametrize("told", [True, False])
async def test_an_input_says_who_hears_of_its_rejections(told: bool) -> None:
    then = "then: agent, " if told else ""
    body = RULED.replace("on_invalid: {", f"on_invalid: {{ {then}") + "agent: { control: true }\n"
    rig = Rig(body, auto=True)
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 3, "name": "Bo"})])
    assert isinstance(taken, RejectedArrival)
    assert [one.escalate for one in rig.journal.of(journaled.Rejected)] == [told]
    assert len(rig.parts.pending) == 0


async def test_a_rule_that_cannot_be_evaluated_rejects() -> None:
    rig = Rig(RULED, auto=True)
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 30})])
    assert isinstance(taken, RejectedArrival)
    assert taken.rule == "size(data.name) > 1"


async def test_a_broken_message_falls_back_to_the_plain_one() -> None:
    rig = Rig(RULED.replace("${data.name}", "${upper(data.age)}"), auto=True)
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 3, "name": "Bo"})])
    assert isinstance(taken, RejectedArrival)
    assert taken.message.startswith("the rule 'data.age >= 18' does not hold")
    assert "[the message template failed:" in taken.message


async def test_secrets_that_a_message_echoes_are_masked() -> None:
    rig = Rig(RULED, auto=True, secrets={"token": "s3cr3t-value"})
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 3, "name": "s3cr3t-value"})])
    assert isinstance(taken, RejectedArrival)
    assert taken.message == "no: data.age >= 18 for ***"
    assert rig.journal.of(journaled.Rejected)[0].error.message == taken.message


async def test_parsed_data_may_be_a_little_larger_than_a_body() -> None:
    rig = Rig(auto=True, packet_limit=100)
    assert len(await rig.accept("x" * 138)) == 1


async def test_what_is_too_large_is_rejected_without_its_payload() -> None:
    rig = Rig(auto=True, packet_limit=100)
    (taken,) = await rig.parts.intake.take([rig.arrival("x" * 139)])
    assert isinstance(taken, RejectedArrival)
    assert taken.message == (
        "the packet has 141 bytes, more than 1.4 times engine.packet_limit (100)"
    )
    assert rig.journal.of(journaled.Rejected)[0].data == b"null"


async def test_the_buffer_is_exact_under_concurrent_senders() -> None:
    rig = Rig(with_buffer(3))
    rig.output.hold()
    senders = [message(rig, {"n": n}) for n in range(8)]
    await quiet()
    assert len(rig.journal.of(journaled.Accepted)) == 3
    await rig.journal.land()
    taken = [(await sender)[0] for sender in senders]
    assert [isinstance(one, Accepted) for one in taken] == [True] * 3 + [False] * 5
    refusal = taken[-1]
    assert refusal.message == "buffer full (3 packets pending)"
    assert "buffer.max" in refusal.hint
    assert rig.parts.admission.refused == {("input", "buffer_full"): 5}


async def test_the_buffer_is_exact_within_one_group() -> None:
    rig = Rig(with_buffer(3), auto=True)
    rig.output.hold()
    taken = await rig.parts.intake.take([rig.arrival({"n": n}) for n in range(5)])
    assert [type(one) for one in taken] == [Accepted] * 3 + [RefusedArrival] * 2


async def test_a_full_buffer_refuses_even_bad_data_and_journals_nothing() -> None:
    rig = Rig(RULED + "buffer: { max: 1 }\n")
    rig.output.hold()
    await rig.accept({"age": 20, "name": "Ada"})
    before = rig.journal.names()
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 1, "name": "Bo"})])
    assert isinstance(taken, RefusedArrival)
    assert rig.journal.names() == before


async def test_rejections_and_ends_give_their_places_back() -> None:
    rig = Rig(RULED + "buffer: { max: 1 }\n", auto=True)
    for _ in range(3):
        (taken,) = await rig.parts.intake.take([rig.arrival({"age": 1, "name": "Bo"})])
        assert isinstance(taken, RejectedArrival)
    for _ in range(3):
        (taken,) = await rig.parts.intake.take([rig.arrival({"age": 20, "name": "Ada"})])
        assert isinstance(taken, Accepted)
        await quiet()


async def test_a_commit_that_fails_tells_the_sender_and_gives_the_places_back() -> None:
    rig = Rig(with_buffer(2))
    sender = asyncio.create_task(
        rig.parts.intake.take([rig.arrival(1), rig.arrival(2)]), name="a sender"
    )
    await quiet()
    await rig.journal.fail(Unavailable("the disk is gone"))
    with pytest.raises(Unavailable, match="the disk is gone"):
        await sender
    rig.journal.refuses = None
    assert len(await rig.accept(1, 2)) == 2
    assert rig.output.written[:1] != []


async def test_a_journal_that_takes_nothing_costs_no_places() -> None:
    rig = Rig(with_buffer(2))
    rig.journal.refuses = Unavailable("200001 changes wait for the journal")
    for _ in range(3):
        with pytest.raises(Unavailable, match="200001"):
            await rig.parts.intake.take([rig.arrival(1)])
    rig.journal.refuses = None
    assert len(await rig.accept(1, 2)) == 2


async def test_a_group_is_answered_in_order_and_committed_at_once() -> None:
    rig = Rig(RULED)
    sender = asyncio.create_task(
        rig.parts.intake.take(
            [
                rig.arrival({"age": 20, "name": "Ada"}),
                rig.arrival({"age": 2, "name": "Bo"}),
                rig.arrival({"age": 30, "name": "Cy"}),
            ]
        )
    )
    await quiet()
    assert len(rig.journal.waiting) == 1
    await rig.journal.land()
    taken = await sender
    assert [type(one) for one in taken] == [Accepted, RejectedArrival, Accepted]
    ids = [one.packet_id for one in taken if not isinstance(one, RefusedArrival)]
    assert ids == sorted(ids)
    assert [c.queue_seq for c in rig.journal.of(journaled.Accepted)] == [1, 2]


async def test_a_packet_keeps_the_version_it_arrived_under() -> None:
    rig = Rig(auto=True)
    await rig.parts.intake.take([rig.arrival(1)])
    rig.plans.put_in_force(edition_of(rig.pipeline, 2))
    await rig.parts.intake.take([rig.arrival(2)])
    assert [c.version for c in rig.journal.of(journaled.Accepted)] == [1, 2]


async def test_an_inputs_state_commits_with_its_packet() -> None:
    rig = Rig(auto=True)
    await rig.parts.intake.take([rig.arrival(1, state={"position": "7"})])
    assert rig.journal.of(journaled.Accepted)[0].state == {"position": "7"}


async def test_a_closed_gate_takes_nothing() -> None:
    rig = Rig(opened=False)
    (taken,) = await rig.parts.intake.take([rig.arrival(1)])
    assert taken == RefusedArrival("pipeline is starting")
    assert rig.journal.handed == []


async def test_who_waits_for_the_end_hears_it_once_it_is_durable() -> None:
    rig = Rig()
    (packet_id,) = await rig.accept(1)
    waiting = asyncio.create_task(rig.parts.intake.settled(packet_id, 60.0), name="a waiter")
    await quiet()
    assert rig.journal.names(packet_id)[-1] == "Delivered"
    assert not waiting.done()
    await rig.journal.land()
    assert await waiting == Settlement("delivered")


async def test_what_an_input_remembers_is_on_disk_when_it_is_told_so() -> None:
    rig = Rig()
    moved = asyncio.create_task(rig.parts.intake.remember("input", {"offset": "7"}), name="moved")
    await quiet()
    assert rig.journal.of(journaled.InputMoved) == [journaled.InputMoved("input", {"offset": "7"})]
    assert not moved.done()
    await rig.journal.land()
    await moved


# ── what other pipelines hand over ───────────────────────────────────────────

UPSTREAM = {"pipeline": "gate", "packet_id": "01S", "key": "01S:a", "depth": 1}


class Shelf:
    """The journal's inbox, as the test fills it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[tuple[str, str], tuple[str, str]] = {}
        monkeypatch.setattr(reads, "handed_over", self._handed_over)

    async def _handed_over(self, rows: Any, keys: Any) -> dict[tuple[str, str], tuple[str, str]]:
        return {key: self.found[key] for key in keys if key in self.found}


async def test_a_key_and_its_sender_are_in_the_packets_own_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Shelf(monkeypatch)
    rig = Rig(auto=True)
    (taken,) = await rig.parts.intake.take(
        [rig.arrival(1, trigger="pipeline", key="01S:a", upstream=UPSTREAM)]
    )
    (change,) = rig.journal.of(journaled.Accepted)
    assert taken == Accepted(change.unit)
    assert (change.key, change.source) == ("01S:a", "test")
    assert json.loads(change.upstream or b"") == UPSTREAM


async def test_a_rejection_says_where_it_was_handed_over_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Shelf(monkeypatch)
    rig = Rig(RULED, auto=True)
    arrival = rig.arrival({"age": 1, "name": "Bo"}, key="01S:a", upstream=UPSTREAM)
    (taken,) = await rig.parts.intake.take([arrival])
    assert isinstance(taken, RejectedArrival)
    (change,) = rig.journal.of(journaled.Rejected)
    assert json.loads(change.upstream or b"") == UPSTREAM


async def test_a_key_makes_one_packet_however_often_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(monkeypatch)
    rig = Rig()
    twice = [rig.arrival(1, key="a"), rig.arrival(2, key="a"), rig.arrival(3, key="b")]
    first = asyncio.create_task(rig.parts.intake.take(twice))
    await quiet()
    again = asyncio.create_task(rig.parts.intake.take([rig.arrival(1, key="a")]))
    await quiet()
    # The retry of a sender that waited no longer comes after what it repeats.
    assert len(rig.journal.of(journaled.Accepted)) == 2
    await rig.journal.land()
    one, other, third = await first
    assert isinstance(one, Accepted)
    assert isinstance(third, Accepted)
    assert other == Accepted(one.packet_id, duplicate=True)
    # The claim was let go with the commit: what it made is found now.
    await quiet()
    shelf.found["test", "a"] = (one.packet_id, "writing")
    await rig.settle()
    assert isinstance((await again)[0], Accepted)


@pytest.mark.parametrize("gate", ["full", "rule", "draining"])
async def test_what_was_handed_over_before_passes_no_gate(
    monkeypatch: pytest.MonkeyPatch, gate: str
) -> None:
    shelf = Shelf(monkeypatch)
    shelf.found["test", "a"] = ("01P", "dead_lettered")
    rig = Rig(with_buffer(1) if gate == "full" else RULED)
    if gate == "full":
        message(rig, {"n": 1})
        await quiet()
    if gate == "draining":
        rig.parts.admission.close("draining")
    (taken,) = await rig.parts.intake.take([rig.arrival({"age": 1}, key="a")])
    assert taken == Accepted("01P", duplicate=True, state="dead_lettered")
    assert rig.parts.admission.refused == {}


async def test_a_refused_key_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(monkeypatch)
    rig = Rig(RULED, auto=True)
    rig.parts.admission.close("draining")
    for _ in range(2):
        async with asyncio.timeout(1):
            (taken,) = await rig.parts.intake.take([rig.arrival({"age": 1}, key="a")])
        assert isinstance(taken, RefusedArrival)
    rig.parts.admission.open()
    rig.journal.refuses = Unavailable("too much waits")
    for _ in range(2):
        with pytest.raises(Unavailable):
            async with asyncio.timeout(1):
                await rig.parts.intake.take([rig.arrival({"age": 20, "name": "Ada"}, key="a")])
