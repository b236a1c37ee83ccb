"""Says what is wrong with a destination after a crash. Pure; an empty list is a pass.

It believes three witnesses: the ledger of what was answered, the journal's rows, and the
records as they are read back by the format's own parser.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Record = tuple[str, int]
"""The packet's id, and its number."""


class Unreadable(Exception):
    """A destination that its format's parser refuses."""


@dataclass(frozen=True)
class Journal:
    """What Pipo says became of its packets."""

    accepted: Mapping[str, int]
    """Ids and numbers."""
    delivered: Mapping[str, int]
    """How often each was."""
    others: Mapping[str, int]
    """Events of any other end, by type."""
    last: str
    """The packet that was written last."""


def faults(
    shape: str, answered: Iterable[int], journal: Journal, records: Sequence[Record]
) -> list[str]:
    """All that is lost, doubled, strange or not delivered once."""
    return [
        *_of_the_journal(answered, journal),
        *_of_the_records(shape, journal, records),
    ]


def _of_the_journal(answered: Iterable[int], journal: Journal) -> Iterator[str]:
    if lost := set(answered) - set(journal.accepted.values()):
        yield f"answered and lost: {sorted(lost)}"
    for id in journal.accepted:
        if (times := journal.delivered.get(id, 0)) != 1:
            yield f"{id} was delivered {times} times"
    for type_, times in journal.others.items():
        yield f"{times} × {type_}"


def _of_the_records(shape: str, journal: Journal, records: Sequence[Record]) -> Iterator[str]:
    for id, n in records:
        if id not in journal.accepted:
            yield f"{id} is there and was never accepted"
        elif journal.accepted[id] != n:
            yield f"{id} is there with {n} instead of {journal.accepted[id]}"
    if shape.endswith("-write"):
        if [id for id, _ in records] != [journal.last]:
            yield f"{records} is there instead of the last, {journal.last}"
        return
    # An upsert's key is the number: one that was sent again is the same row.
    by_number = shape == "upsert"
    wanted = set(journal.accepted.values() if by_number else journal.accepted)
    found = Counter(n if by_number else id for id, n in records)
    if missing := wanted - set(found):
        yield f"not there: {sorted(missing, key=str)}"
    if doubled := {key: times for key, times in found.items() if times > 1}:
        yield f"doubled: {doubled}"


def parse(shape: str, text: str) -> list[Record]:
    """The records of a file.

    Raises: Unreadable.
    """
    kind, _, mode = shape.partition("-")
    try:
        return [(str(one["id"]), int(one["n"])) for one in _objects(kind, mode, text)]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise Unreadable(f"{shape} does not parse: {error!r}: {text[-200:]!r}") from error


def _objects(kind: str, mode: str, text: str) -> list[Mapping[str, str]]:
    if not text.endswith("\n"):
        raise ValueError("no line break at the end")
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    if kind == "json":
        # With `write` the file is the packet's data alone.
        whole = json.loads(text)
        return [whole] if mode == "write" else [one["data"] for one in whole]
    made = [json.loads(line) for line in text.splitlines()]
    return [one["data"] for one in made] if kind == "jsonl" else made
