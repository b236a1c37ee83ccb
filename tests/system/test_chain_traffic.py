"""What travels between the two ends of a chain: messages, waits, large packets, and slots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import operate, packet, push, running, settled
from tests.stack import Stack, journal_of, query, wait_for
from tests.wiretap import Wiretap

pytestmark = pytest.mark.slow

MANY = 300
SLOTS = 64
LARGE = 12 << 20


def sender(to: str, more: str, *, slots: int = SLOTS) -> str:
    return (
        f"concurrency: {slots}\ninput: {{ via: push }}\n"
        f"output:\n  from: input\n  to: pipeline\n  with: {{ pipeline: {to} }}\n"
        f"  on_error: {{ retry: 10000, backoff: fixed, delay: 100ms }}\n{more}"
    )


def receiver(name: str, of: str, more: str = "") -> str:
    return (
        f"concurrency: {SLOTS}\ninput: {{ via: pipeline, with: {{ from: [{of}] }} }}\n"
        f"output: {{ from: input, to: file, with: {{ path: ./{name}.jsonl }} }}\n{more}"
    )


PIPELINES = {
    "waits": sender("slow", "delivered: { check: downstream, within: 10m }\n"),
    "slow": receiver("slow", "waits", "delivered: { check: external, within: 1h }\n"),
    "many": sender("taker", "delivered: { check: ack }\n"),
    "taker": receiver("taker", "many"),
    "few": sender("away", "delivered: { check: ack }\n", slots=2),
    "away": receiver("away", "few"),
}


@pytest.fixture(scope="module")
def tap(tmp_path_factory: pytest.TempPathFactory) -> Wiretap:
    return Wiretap(tmp_path_factory.mktemp("tap"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tap: Wiretap) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("traffic"), PIPELINES, env=tap.env) as made:
        yield made


def rows(stack: Stack, name: str, sql: str) -> list[list[Any]]:
    return query(journal_of(stack.home, name), sql)


def test_nobody_asks_in_a_loop_for_what_the_receiver_has_not_delivered(
    stack: Stack, tap: Wiretap
) -> None:
    """Ten looks' time passes, and the receiver hears nothing: no look, no call of any kind."""
    ids = [push(stack, "waits", {"n": n}) for n in range(5)]
    wait_for(lambda: stack.get("/api/pipelines/slow")["runner"]["awaiting_ack"] == 5)
    wait_for(lambda: sum(tap.messages("slow", "DownstreamState")) == 5)
    assert {packet(stack, "waits", id)["state"] for id in ids} == {"verifying"}
    before = (tap.calls("slow"), tap.messages("slow", "DownstreamState"))
    # No condition to wait for: it is what does not happen that is looked at.
    time.sleep(2.5)
    assert (tap.calls("slow"), tap.messages("slow", "DownstreamState")) == before
    assert before[0]["DownstreamState"] == 1
    acked = [packet(stack, "waits", id)["result"]["packet_id"] for id in ids]
    for id in acked:
        operate(stack, "slow", "ack", packet_id=id)
    for id in ids:
        assert settled(stack, "waits", id)["state"] == "delivered"
    # Each was named once, from the hand-off to the end.
    assert sum(tap.messages("slow", "DownstreamState")) == 5


def test_hand_offs_that_are_ready_together_travel_together(stack: Stack, tap: Wiretap) -> None:
    operate(stack, "many", "pause")
    for n in range(MANY):
        push(stack, "many", {"n": n})
    operate(stack, "many", "resume")
    wait_for(lambda: stack.stats("taker")["delivered"] == MANY)
    sizes = tap.messages("taker", "Deliver")
    assert sum(sizes) == MANY
    assert len(sizes) <= MANY / 8, sizes
    assert max(sizes) <= SLOTS


def test_a_large_packet_holds_up_no_other(stack: Stack, tap: Wiretap) -> None:
    """It travels in pieces, each a message of its own; the small ones around it are all there."""
    before = stack.stats("taker")["delivered"]
    seen = len(tap.messages("taker", "Deliver"))
    operate(stack, "many", "pause")
    small = [push(stack, "many", {"n": n}) for n in range(10)]
    large = push(stack, "many", {"text": "x" * LARGE})
    small += [push(stack, "many", {"n": n}) for n in range(10)]
    operate(stack, "many", "resume")
    wait_for(lambda: stack.stats("taker")["delivered"] == before + 21, deadline_s=120)
    sizes = tap.messages("taker", "Deliver")[seen:]
    assert sum(sizes) >= 20 + LARGE // (1 << 20)
    settled_at = {id: packet(stack, "many", id)["updated_at"] for id in (*small, large)}
    assert max(settled_at[id] for id in small[:10]) <= settled_at[large]
    # The others waited for its transfer at most, and never for a time limit of it.
    assert max(settled_at.values()) - min(settled_at.values()) < 9_000
    made = dict(rows(stack, "taker", "SELECT key, packet FROM inbox"))
    assert {large, *small} <= set(made)


def test_who_waits_for_a_receiver_holds_a_slot_and_the_rest_wait_in_line(stack: Stack) -> None:
    """Edge 106: the two slots try again and again; whoever is behind them has not begun."""
    operate(stack, "away", "stop")
    wait_for(lambda: stack.get("/api/pipelines/away")["state"] == "stopped")
    ids = [push(stack, "few", {"n": n}) for n in range(5)]
    wait_for(lambda: all(packet(stack, "few", id)["attempt"] > 1 for id in ids[:2]))
    for id in ids[2:]:
        found = packet(stack, "few", id)
        assert (found["state"], found["attempt"]) == ("accepted", 0)
    stats = stack.stats("few")
    assert (stats["pending"], stats["dead_lettered"]) == (5, 0)
    operate(stack, "away", "start")
    for id in ids:
        assert settled(stack, "few", id)["state"] == "delivered"
    assert stack.stats("away")["accepted"] == 5
