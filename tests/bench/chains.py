"""A chain of two beside one pipeline, in one run: rates, and what a hand-off costs in messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.load import grpc_pushes
from tests.stack import Stack, journal_of, query_each, wait_for
from tests.wiretap import Wiretap

COUNT = 20_000
HEAD = "pipo: 1\nname: {name}\nconcurrency: {slots}\nbuffer: {{ max: 100000 }}\n"
FILE = "output: {{ from: input, to: file, with: {{ path: ./{name}.jsonl }} }}\n"
ALONE = HEAD + "input: {{ via: push }}\n" + FILE
SENDER = (
    HEAD
    + "input: {{ via: push }}\noutput: {{ from: input, to: pipeline, with: {{ pipeline: to-{name} }} }}\n"
    + "delivered: {{ check: {check} }}\n"
)
RECEIVER = HEAD.replace("{name}", "to-{name}") + (
    "input: {{ via: pipeline, with: {{ from: [{name}] }} }}\n" + FILE
)
# Chains by name: their slots, and what the sender waits for.
CHAINS = {
    "ack-64": (64, "ack"),
    "seen-64": (64, "downstream, within: 10m"),
    "ack-4": (4, "ack"),
}

SPAN = "SELECT min(at), max(at) FROM events WHERE type IN ('packet.accepted', 'packet.delivered')"


def report(folder: Path, *, count: int = COUNT) -> None:
    """A line for one pipeline, and one for each chain of two; the folder is made."""
    folder.mkdir()
    tap = Wiretap(folder)
    stack = Stack(folder, env=tap.env)
    stack.write("alone.pipo", ALONE.format(name="alone", slots=64))
    for name, (slots, check) in CHAINS.items():
        words = {"name": name, "slots": slots, "check": check}
        stack.write(f"{name}.pipo", SENDER.format(**words))
        stack.write(f"to-{name}.pipo", RECEIVER.format(**words))
    try:
        stack.start()
        alone = _rate(stack, ["alone"], count)
        print("one pipeline, gRPC push → file".ljust(56) + f" {alone:9,.0f} /s")
        for name, (slots, check) in CHAINS.items():
            rate = _rate(stack, [name, f"to-{name}"], count)
            sizes = tap.messages(f"to-{name}", "Deliver")
            what = f"a chain of two, {slots} slots, {check.partition(',')[0]}"
            print(
                what.ljust(56)
                + f" {rate:9,.0f} /s  {rate / alone:5.2f} × one; {len(sizes) / sum(sizes):.3f} "
                f"messages a packet, up to {max(sizes)} in one"
            )
    finally:
        stack.stop()
        stack.kill_all()


def _rate(stack: Stack, pipelines: Sequence[str], count: int) -> float:
    """Packets a second from the first acceptance until all are delivered by each, by the journals."""
    port = stack.port + 1
    asyncio.run(grpc_pushes.push(count, port=port, pipeline=pipelines[0], deadline_s=600))
    for name in reversed(pipelines):
        wait_for(
            lambda name=name: stack.stats(name).get("delivered") == count,  # type: ignore[misc]
            deadline_s=600,
            what=lambda name=name: f"{name}: {stack.stats(name)}",  # type: ignore[misc]
        )
    spans = query_each([(journal_of(stack.home, name), SPAN) for name in pipelines])
    first, last = zip(*(rows[0] for rows in spans), strict=True)
    return count * 1000.0 / float(max(last) - min(first))
