"""Writes that fail, each against a real destination (outputs)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mounts import small_disk
from tests.packets import inspect, outcome, push, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, query
from tests.system.test_report_13 import Holder

pytestmark = pytest.mark.slow

POLICY = "  on_error: { retry: 2, delay: 100ms, message: '${error.attempts} x ${error.message}' }\n"


def to(output: str, settings: str, policy: str = POLICY) -> str:
    return (
        f"input: {{ via: push }}\noutput:\n  from: input\n  to: {output}\n"
        f"  with: {{ {settings} }}\n{policy}"
    )


def to_database(path: str, policy: str = POLICY) -> str:
    return to("sqlite", f"path: {path}, table: t, create: true", policy)


PIPELINES = {
    "locked": to_database("./locked.db"),
    "locked-once": to_database("./locked-once.db", ""),
    "full": to_database("./small/full.db"),
    "full-once": to_database("./small/full-once.db", ""),
    "broken": to("http", 'url: "${env.STUB}/broken"'),
    "broken-once": to("http", 'url: "${env.STUB}/broken"', ""),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.script("/broken", Reply(500, "no more room"))
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("failures"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def assert_failed(stack: Stack, name: str, id: str, said: str) -> None:
    """Each attempt stands in the trail, and the last one's words in the error."""
    end = settled(stack, name, id, deadline_s=60.0)
    tries = 1 if name.endswith("-once") else 3
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
    assert end["error"]["attempts"] == tries
    assert said in end["error"]["message"]
    if tries > 1:
        assert end["error"]["message"].startswith(f"{tries} x ")
    retries = of_type(stack, name, id, "step.retry")
    assert [said in detail["error"] for detail in retries] == [True] * (tries - 1)
    told = stack.pipo("inspect", name, id).stdout
    assert "output.failed" in told
    assert said in told
    assert ("3 attempts" in told) == (tries == 3)
    shown = json.loads(stack.pipo("inspect", name, id, "--json").stdout)["packet"]["error"]
    assert (shown["code"], shown["attempts"]) == ("output.failed", tries)


def of_type(stack: Stack, name: str, id: str, type: str) -> list[dict[str, Any]]:
    return [e["detail"] for e in inspect(stack, name, id)["events"] if e["type"] == type]


@pytest.mark.seed("O012")
def test_a_locked_database_is_a_failed_write(stack: Stack) -> None:
    names = ("locked", "locked-once")
    for name in names:
        assert outcome(stack, name, {"n": 0})["state"] == "delivered"
    holders = [Holder(stack.workspace / f"{name}.db", "BEGIN IMMEDIATE") for name in names]
    try:
        ids = {name: push(stack, name, {"n": 1}) for name in names}
        for name, id in ids.items():
            assert_failed(stack, name, id, f"{name}.db is locked")
    finally:
        for holder in holders:
            holder.release()
    for name in names:
        assert query(stack.workspace / f"{name}.db", "SELECT n FROM t") == [[0]]
        assert outcome(stack, name, {"n": 2})["state"] == "delivered"


@pytest.mark.seed("O012")
def test_a_full_disk_is_a_failed_write(stack: Stack) -> None:
    names = ("full", "full-once")
    with small_disk(stack.workspace / "small") as place:
        for name in names:
            assert outcome(stack, name, {"s": ""})["state"] == "delivered"
        filler = fill(place)
        for name in names:
            id = push(stack, name, {"s": "x" * 60_000})
            assert_failed(stack, name, id, "no room left to write")
        filler.unlink()
        for name in names:
            assert outcome(stack, name, {"s": "x" * 60_000})["state"] == "delivered"


def fill(place: Path) -> Path:
    """A file that leaves 8 KiB of a file system."""
    found = os.statvfs(place)
    filler = place / "filler"
    filler.write_bytes(b"x" * (found.f_bavail * found.f_frsize - 8_192))
    return filler


@pytest.mark.seed("O012")
def test_an_http_500_is_a_failed_write(stack: Stack, receiver: Receiver) -> None:
    for name, tries in (("broken", 3), ("broken-once", 1)):
        before = len(receiver.at("/broken"))
        id = push(stack, name, {"n": 1})
        assert_failed(stack, name, id, "answered 500: no more room")
        assert receiver.keys("/broken")[before:] == [id] * tries
