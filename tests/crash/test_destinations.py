"""SIGKILL at every named point on the way to a destination: each key is there exactly once.

`make test` runs a covering set, in which every two of point, shape, batch size and check
meet; `make soak` runs the whole product (design §10).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.file.keylog import SUFFIX
from tests.crash.killing import FEW, Killing
from tests.crash.matrix import ACK, FORMATS, POINTS, Case, covering, product
from tests.load.ledger import Ledger
from tests.packets import run_sql
from tests.receiver import Receiver

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# How many pipelines one stack runs: memory and two cores set it.
TOGETHER = 14
# What is cut from a file whose last record goes from `start` to `end`: where it ends then.
CUTS: Mapping[str, Callable[[int, int], int]] = {
    "all but a byte": lambda start, end: start + 1,
    "half": lambda start, end: (start + end) // 2,
    "its line break": lambda start, end: end - 1,
}
# A database that loses what it took.
FORGETFUL = """
CREATE TABLE t (packet_id TEXT PRIMARY KEY, id TEXT, n INTEGER);
CREATE TRIGGER forgets AFTER INSERT ON t WHEN new.n = 4
BEGIN DELETE FROM t WHERE n = new.n; END
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


def kill(folder: Path, cases: list[Case], receiver: Receiver) -> None:
    killing = Killing(folder, cases, receiver)
    try:
        killing.run()
        wrong = killing.faults()
        assert not wrong, f"{wrong}\n{killing.stack.output()}"
    finally:
        killing.stack.kill_all()


@pytest.mark.seed("O005", "O029", "O033", "O075", "R058", "R061")
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_each_key_once(tmp_path: Path, receiver: Receiver, point: str) -> None:
    kill(tmp_path, [case for case in covering() if case.point == point], receiver)


def whole_product() -> Iterator[Any]:
    for point in POINTS:
        cases = [case for case in product() if case.point == point]
        for start in range(0, len(cases), TOGETHER):
            yield pytest.param(cases[start : start + TOGETHER], id=f"{point}-{start}")


@pytest.mark.soak
@pytest.mark.parametrize("cases", list(whole_product()))
def test_the_whole_product(tmp_path: Path, receiver: Receiver, cases: list[Case]) -> None:
    kill(tmp_path, cases, receiver)


# ── what turns the judge red ─────────────────────────────────────────────────


def only(killing: Killing) -> str:
    """The faults of the one case."""
    (found,) = killing.faults().values()
    return "; ".join(found)


def test_a_receiver_that_ignores_keys_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    receiver.honours_keys = False
    killing = Killing(tmp_path, [Case("output.after_write", "http", None, ACK)], receiver)
    try:
        killing.run()
        assert "doubled: " in only(killing)
    finally:
        killing.stack.kill_all()


def test_an_answer_before_the_commit_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    """The ledger takes a packet that nobody answered for, as if Pipo had answered too early."""
    killing = Killing(tmp_path, [Case("accepted.before_commit", "insert", None, ACK)], receiver)
    try:
        killing.start()
        killing.push(0)
        killing.settle()
        killing.set_traps()
        ledger = Ledger(killing.ledger)
        ledger.note("v0/99")
        ledger.close()
        killing.push_one(99)
        killing.sprung()
        killing.settle()
        assert only(killing) == "answered and lost: [99]"
    finally:
        killing.stack.kill_all()


def test_a_check_that_says_yes_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    """The database forgets a row that it took, and `ack` does not look."""
    killing = Killing(tmp_path, [Case("output.after_write", "insert", None, ACK)], receiver)
    run_sql(killing.file(killing.victims[0]), FORGETFUL)
    try:
        killing.run()
        assert only(killing).startswith("not there: ")
    finally:
        killing.stack.kill_all()


def test_a_lost_side_file_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    """Without the keys of a csv file a repeated write makes a second row."""
    case = Case("output.after_write", "csv-append", None, ACK)
    killing = Killing(tmp_path, [case], receiver, backoff="1h")
    try:
        down(killing)
        side = killing.file(killing.victims[0])
        side.with_name(side.name + SUFFIX).unlink()
        killing.start()
        killing.settle()
        assert "doubled: " in only(killing)
    finally:
        killing.stack.kill_all()


# ── torn appends ─────────────────────────────────────────────────────────────


@pytest.mark.seed("O032")
def test_a_torn_append_is_made_good(tmp_path: Path, receiver: Receiver) -> None:
    """R18: the last record, cut while nobody runs, is written again, and the next one is whole."""
    torn = [(kind, cut) for kind in FORMATS for cut in CUTS]
    cases = [Case("output.after_write", f"{kind}-append", None, ACK) for kind, _ in torn]
    killing = Killing(tmp_path, cases, receiver, backoff="1h")
    try:
        before = down(killing)
        for victim, (_, cut) in zip(killing.victims, torn, strict=True):
            file = killing.file(victim)
            start, end = before[victim.name], file.stat().st_size
            os.truncate(file, CUTS[cut](start, end))
        killing.start()
        killing.push_one(8)
        killing.settle()
        for victim, (kind, cut) in zip(killing.victims, torn, strict=True):
            if kind == "jsonl" and cut != "its line break":
                drop_the_torn_line(killing.file(victim))
        assert killing.faults() == {}
        counts = {len(journal.accepted) for journal in killing.journals().values()}
        assert counts == {FEW + 2}
    finally:
        killing.stack.kill_all()


def down(killing: Killing) -> dict[str, int]:
    """Kills every victim at its next packet, and the stack; where that packet's record begins."""
    killing.start()
    killing.push(0)
    killing.settle()
    before = {}
    for victim in killing.victims:
        text = killing.file(victim).read_bytes()
        # An array goes on before its end.
        before[victim.name] = len(text.removesuffix(b"\n]\n"))
    killing.set_traps()
    killing.push_one(7)
    killing.sprung()
    killing.stack.kill_all()
    return before


def drop_the_torn_line(file: Path) -> None:
    """It stands on a line of its own."""
    lines = file.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"}}\n")]
    assert len(lines) - len(whole) == 1
    file.write_bytes(b"".join(whole))
