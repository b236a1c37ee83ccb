"""The watch input in a running stack: R19, R32 and R45 for watched folders, and a pause."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import running
from tests.receiver import Receiver
from tests.stack import Stack, free_ports, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

DROP = """\
input: { via: watch, with: { path: "./in/*.json", events: [create, change, delete], read: content } }
output: { from: input, to: file, with: { path: ./out/drop.jsonl, format: jsonl } }
"""
FULL = """\
buffer: {{ max: 100 }}
input: {{ via: watch, with: {{ path: "./full/*.txt" }} }}
output:
  from: input
  to: http
  with: {{ url: "http://127.0.0.1:{port}/x", body: "${{data.name}}" }}
  on_error: {{ retry: 1000, delay: 200ms }}
"""
CARD = """\
inputs:
  one: { via: watch, with: { path: "./card/*.txt" } }
  two: { via: watch, with: { path: "./card/*.md" } }
output: { from: [one, two], to: file, with: { path: ./out/card.jsonl } }
"""
PAUSED = """\
buffer: { max: 2 }
input: { via: watch, with: { path: ./paused } }
output: { from: input, to: file, with: { path: ./out/paused.jsonl } }
"""


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Stack]:
    pipelines = {"drop": DROP, "full": FULL.format(port=port), "card": CARD, "paused": PAUSED}
    folder = tmp_path_factory.mktemp("watched")
    for name in ("in", "full", "card", "paused", "tmp"):
        (folder / "workspace" / name).mkdir(parents=True)
    with running(folder, pipelines) as made:
        yield made


def told(stack: Stack) -> list[dict[str, Any]]:
    """What came out of R19's pipeline."""
    out = stack.workspace / "out/drop.jsonl"
    return [line["data"] for line in lines(out)] if out.exists() else []


def of(stack: Stack, name: str, since: int = 0) -> list[tuple[str, str | None]]:
    """What was told of a file, behind so many others."""
    mine = [one for one in told(stack)[since:] if one["name"] == name]
    return [(one["event"], one.get("content")) for one in mine]


def drop(stack: Stack) -> list[str]:
    """R19's writers, all but the slow one; what the quick one wrote."""
    folder = stack.workspace / "in"
    parts = [f"part{n} " for n in range(1, 9)]
    (folder / "a.json").touch()
    for part in parts:
        with (folder / "a.json").open("a") as file:
            file.write(part)
        time.sleep(0.005)
    (stack.workspace / "tmp/b.json").write_text('{"k":2}')
    (stack.workspace / "tmp/b.json").rename(folder / "b.json")
    (folder / "d.json").write_text("x")
    (folder / "d.json").unlink()
    (folder / "e.json.tmp").write_text("part")
    return parts


def require_r19(stack: Stack, parts: list[str], since: int = 0) -> None:
    wait_for(lambda: of(stack, "a.json", since) and of(stack, "b.json", since), what=stack.output)
    assert of(stack, "a.json", since) == [("create", "".join(parts))]
    assert of(stack, "b.json", since) == [("create", '{"k":2}')]
    assert of(stack, "d.json", since) in ([], [("create", "x"), ("delete", None)])
    assert of(stack, "e.json.tmp") == []


def test_a_file_is_taken_when_it_is_whole(stack: Stack) -> None:
    """R19: dropped while the pipeline runs, a quick writer, a rename, a slow writer."""
    (stack.workspace / "in/c.json").touch()
    parts = drop(stack)
    require_r19(stack, parts)
    # The empty file lay still: it may be a packet of its own, but the last one is full.
    wait_for(lambda: of(stack, "c.json"), what=stack.output)
    (stack.workspace / "in/c.json").write_text("full")
    wait_for(lambda: of(stack, "c.json")[-1][1] == "full", what=stack.output)
    assert of(stack, "c.json") == [("create", ""), ("change", "full")]
    for name in ("a", "b", "c"):
        (stack.workspace / f"in/{name}.json").unlink()
    deleted = wait_for(
        lambda: d if len(d := [o for o in told(stack) if o["event"] == "delete"]) >= 3 else None
    )
    assert sorted(one["name"] for one in deleted if one["name"] != "d.json") == [
        "a.json",
        "b.json",
        "c.json",
    ]
    stats = stack.settle("drop")
    assert stats["accepted"] == stats["delivered"] == len(told(stack))


def test_what_happens_while_it_is_down_is_caught_up(stack: Stack) -> None:
    """R19, its last line; a kill in the midst is `tests/crash/test_watched_folders`."""
    assert stack.pipo("stop", "drop").returncode == 0
    wait_for(lambda: stack.get("/api/pipelines/drop")["state"] == "stopped")
    before = len(told(stack))
    parts = drop(stack)
    assert stack.pipo("start", "drop.pipo").returncode == 0
    require_r19(stack, parts, before)
    stack.settle("drop")
    assert [(one["event"], one["name"]) for one in told(stack)[before:]] == [
        ("create", "a.json"),
        ("create", "b.json"),
    ]


def test_a_full_buffer_makes_files_wait(stack: Stack, port: int) -> None:
    """R32: the scan stops at the first refused path; all arrive, each once, and more after."""
    names = [f"{n:03}.txt" for n in range(150)]
    for name in names:
        (stack.workspace / "full" / name).write_text("x")
    wait_for(lambda: stack.stats("full").get("pending") == 100, what=stack.output)
    log = stack.home / "logs/full.log"
    wait_for(lambda: "files wait" in log.read_text(), what=log.read_text)
    journal = journal_of(stack.home, "full")
    assert query(journal, "SELECT count(*) FROM units") == [[100]]
    assert query(journal, "SELECT count(*) FROM input_state WHERE key LIKE 'f:%'") == [[100]]
    metrics = stack.request("/metrics", method="GET")[2].decode()
    assert 'pipo_packets_pending{pipeline="full"} 100' in metrics
    assert re.search(r"pipo_intake_refused_total\{.*buffer_full.*\} [1-9]", metrics)
    with Receiver(port) as receiver:
        wait_for(lambda: stack.stats("full").get("delivered") == 150, deadline_s=40.0)
        for n in range(50):
            (stack.workspace / f"full/more{n}.txt").write_text("x")
        wait_for(lambda: stack.stats("full").get("delivered") == 200, deadline_s=40.0)
        assert receiver.effects == 200
    rows = query(journal, "SELECT json_extract(data, '$.name') FROM units ORDER BY id")
    assert [name for (name,) in rows][:150] == names
    assert len({name for (name,) in rows}) == 200


def test_no_series_for_a_file(stack: Stack) -> None:
    """R45, `cardin`: names of files are in no metric."""

    def series() -> set[str]:
        text = stack.request("/metrics", method="GET")[2].decode()
        return {line.rpartition(" ")[0] for line in text.splitlines() if line[:1] != "#"}

    def send(first: int, count: int) -> None:
        for n in range(first, first + count):
            kind = "txt" if n % 2 else "md"
            (stack.workspace / f"card/file-{n}.{kind}").write_text("x")
        wait_for(lambda: stack.stats("card").get("delivered") == first + count, deadline_s=60.0)

    send(0, 10)
    before = series()
    send(10, 300)
    assert {one for one in series() - before if 'pipeline="card"' in one} == set()
    assert not any("file-" in one for one in series())


def test_a_paused_pipeline_takes_files_until_it_is_full(stack: Stack) -> None:
    assert stack.pipo("pause", "paused").returncode == 0
    for n in range(4):
        (stack.workspace / f"paused/{n}").write_text("x")
    wait_for(lambda: stack.stats("paused").get("pending") == 2, what=stack.output)
    log = stack.home / "logs/paused.log"
    wait_for(lambda: "files wait" in log.read_text(), what=log.read_text)
    assert stack.stats("paused")["delivered"] == 0
    assert stack.pipo("resume", "paused").returncode == 0
    wait_for(lambda: stack.stats("paused").get("delivered") == 4, what=stack.output)
    found = lines(stack.workspace / "out/paused.jsonl")
    assert sorted(line["data"]["name"] for line in found) == ["0", "1", "2", "3"]


def test_a_path_that_means_nothing_is_refused(stack: Stack, tmp_path: Path) -> None:
    text = CARD.replace("*.txt", "{a,b}" * 9)
    path = tmp_path / "bad.pipo"
    path.write_text(f"pipo: 1\nname: bad\n{text}")
    refused = stack.pipo("start", str(path))
    assert refused.returncode == 1
    assert "more than 256 alternatives" in refused.stderr
