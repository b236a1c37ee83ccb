"""Acks that meet their deadline, on a real stack: one of the two wins, and the sender knows which."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from pipo.clock import SystemClock
from pipo.errors import InvalidState, PipoError
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.load import grpc_pushes
from tests.stack import Stack, journal_of, query, wait_for

COUNT = 600
WITHIN_S = 10.0
SPREAD_S = 2.0
RACES = f"""pipo: 1
name: races
concurrency: 8
input: {{ via: push }}
output: {{ from: input, to: file, with: {{ path: ./races.jsonl }} }}
delivered: {{ check: external, within: {WITHIN_S:.0f}s }}
"""


async def acks_around_the_deadline(
    deadlines: Mapping[str, float], *, port: int, chance: random.Random
) -> dict[str, str]:
    """Acks each packet within half of SPREAD_S around its deadline; how each was answered."""
    clock = SystemClock()
    channel = dial(f"127.0.0.1:{port}", "")
    answers: dict[str, str] = {}
    try:
        stub = pipo_pb2_grpc.PipoStub(channel)

        async def one(id: str) -> None:
            left_s = (deadlines[id] - clock.now_ms()) / 1000.0
            await asyncio.sleep(max(0.0, left_s + (chance.random() - 0.5) * SPREAD_S))
            try:
                with calling("the gateway"):
                    reply = await stub.Ack(pipo_pb2.AckRequest(pipeline="races", packet_id=id))
                answers[id] = "already" if reply.already else "acked"
            except InvalidState as error:
                answers[id] = "late" if "dead_lettered" in error.message else error.message
            except PipoError as error:
                answers[id] = str(error)

        async with asyncio.TaskGroup() as group:
            for id in deadlines:
                group.create_task(one(id), name=f"ack {id}")
    finally:
        await channel.close()
    return answers


@pytest.mark.slow
def test_an_ack_and_a_deadline_agree_on_who_won(stack: Stack) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    stack.write("races.pipo", RACES)
    stack.start()
    asyncio.run(grpc_pushes.push(COUNT, port=stack.port + 1, pipeline="races"))
    journal = journal_of(stack.home, "races")
    windows = "SELECT unit, max(at) FROM events WHERE type = 'delivery.awaiting_ack' GROUP BY unit"
    wait_for(lambda: len(query(journal, windows)) == COUNT, deadline_s=60)
    deadlines = {unit: at + 1000 * WITHIN_S for unit, at in query(journal, windows)}
    answers = asyncio.run(
        acks_around_the_deadline(deadlines, port=stack.port + 1, chance=random.Random(seed))
    )
    stack.settle("races")
    assert set(answers.values()) <= {"acked", "late"}, Counter(answers.values())
    assert len(set(answers.values())) == 2, "the acks did not meet the deadline"
    found = query(
        journal,
        "SELECT u.id, u.state, count(*) FILTER (WHERE e.type = 'packet.acked'),"
        " count(*) FILTER (WHERE e.type = 'packet.delivered'),"
        " count(*) FILTER (WHERE e.type = 'delivery.unverified')"
        " FROM units AS u JOIN events AS e ON e.unit = u.id GROUP BY u.id",
    )
    wanted = {"acked": ["delivered", 1, 1, 0], "late": ["dead_lettered", 0, 0, 1]}
    wrong = [row for row in found if row[1:] != wanted[answers[row[0]]]]
    assert not wrong, wrong[:5]
    assert len(found) == COUNT
