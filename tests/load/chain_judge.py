"""Says what is wrong with a chain of pipelines after all that happened to it. Pure.

It believes the ledger of what was answered, each journal's rows, and the rows at the end. An
empty list is a pass.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.stack import journal_of, query_each

UNITS = "SELECT id, state, upstream, result FROM units WHERE root IS NULL"
INBOX = "SELECT key, packet FROM inbox"


@dataclass(frozen=True)
class Journal:
    """One pipeline of the chain, by its packets' ids."""

    states: Mapping[str, str]
    made_of: Mapping[str, str] = field(default_factory=dict)
    """The sender's packet that each was made of; empty for the first pipeline."""
    inbox: Sequence[tuple[str, str]] = ()
    """Keys and packets, as often as they stand there."""
    handed: Mapping[str, str] = field(default_factory=dict)
    """The receiver's packet, as the sender's says; empty for the last pipeline."""


def read(home: Path, names: Sequence[str]) -> list[Journal]:
    """The journals of a chain's pipelines, in its order."""
    asked = [(journal_of(home, name), sql) for name in names for sql in (UNITS, INBOX)]
    found = query_each(asked)
    return journals(found[::2], found[1::2])


def journals(units: Sequence[list[list[Any]]], inboxes: Sequence[list[list[Any]]]) -> list[Journal]:
    """The same of the rows of UNITS and of INBOX, for each pipeline."""
    made = []
    for number, (rows, inbox) in enumerate(zip(units, inboxes, strict=True)):
        last = number == len(units) - 1
        upstream = {id: json.loads(text) for id, _, text, _ in rows if text}
        results = {} if last else {id: json.loads(text) for id, _, _, text in rows if text}
        made.append(
            Journal(
                states={id: state for id, state, _, _ in rows},
                made_of={id: one["packet_id"] for id, one in upstream.items()},
                inbox=[(key, packet) for key, packet in inbox],
                handed={id: one["packet_id"] for id, one in results.items()},
            )
        )
    return made


def faults(
    answered: Iterable[str], chain: Sequence[Journal], rows: Sequence[str], delivered: int
) -> list[str]:
    """All that is lost, doubled, strange or not delivered.

    `answered` are the first pipeline's packets that somebody was promised, `rows` the last
    one's packets as often as they stand at the destination, and `delivered` is what the status
    of the first one counts.
    """
    return [
        *(f"{id} was answered and is lost" for id in sorted(set(answered) - set(chain[0].states))),
        *_unsettled(chain),
        *(fault for sender, receiver in pairwise(chain) for fault in _link(sender, receiver)),
        *_each_once("row", rows, chain[-1].states),
        *([] if delivered == len(rows) else [f"{delivered} delivered, and {len(rows)} rows"]),
    ]


def _unsettled(chain: Sequence[Journal]) -> Iterator[str]:
    for number, journal in enumerate(chain):
        for state, count in Counter(journal.states.values()).items():
            if state != "delivered":
                yield f"{count} packets of pipeline {number} are {state}"


def _link(sender: Journal, receiver: Journal) -> Iterator[str]:
    yield from _each_once("packet of the receiver", receiver.made_of.values(), sender.states)
    yield from _each_once("key of the inbox", [key for key, _ in receiver.inbox], sender.states)
    made = {of: packet for packet, of in receiver.made_of.items()}
    for what, said in (("the inbox", dict(receiver.inbox)), ("the sender", sender.handed)):
        if wrong := {key for key, packet in said.items() if made.get(key) != packet}:
            yield f"{what} names another packet for {sorted(wrong)[:3]}"


def _each_once(what: str, found: Iterable[str], wanted: Iterable[str]) -> Iterator[str]:
    counts, known = Counter(found), set(wanted)
    if missing := known - set(counts):
        yield f"no {what} for {len(missing)}, such as {min(missing)}"
    if strange := set(counts) - known:
        yield f"a {what} for {len(strange)} unknown, such as {min(strange)}"
    if doubled := {id: times for id, times in counts.items() if times > 1}:
        yield f"more than one {what} for {len(doubled)}, such as {min(doubled)}"
