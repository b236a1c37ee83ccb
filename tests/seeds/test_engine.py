"""The engine's own lifetime, from a flag and from config.yaml, and what outlives it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.background import Background, in_background
from tests.packets import push
from tests.stack import journal_of, lines, query, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# A step under way is given back at a suspension, and takes longer than the engine's ttl.
SLOW = """\
pipo: 1
name: slow
input: { via: push }
nodes: { wait: { from: input, tap: exec, with: { command: sleep, args: ["4"] } } }
output: { from: wait, to: file, with: { path: ./slow.jsonl } }
"""
KEPT = """\
pipo: 1
name: kept
lifetime: { until: "stats.delivered >= 2" }
input: { via: push }
output: { from: input, to: sqlite, with: { path: ./kept.db, table: t, create: true } }
delivered: { check: record_exists, with: { where: { n: "${data.n}" } } }
"""


def engine(home: Background) -> dict[str, Any] | None:
    """The entry of the engine, while one stands."""
    try:
        found: dict[str, Any] = json.loads(
            (home.home / "run/services/engine-embedded.json").read_text()
        )
    except OSError:
        return None
    return found


def running(home: Background) -> list[str]:
    """The pipelines that the registry names."""
    return sorted(path.stem for path in (home.home / "run").glob("*.json"))


def checkers(home: Background) -> list[str]:
    return sorted(
        path.stem.removeprefix("checker-")
        for path in (home.home / "run/services").glob("checker-*.json")
    )


def stopped_by(home: Background, name: str) -> str:
    rows = query(
        journal_of(home.home, name), "SELECT type FROM events WHERE unit IS NULL ORDER BY seq"
    )
    return str(rows[-1][0])


@pytest.mark.seed("L024", "L025", "L026")
def test_an_engine_with_a_ttl_drains_what_it_runs_and_leaves_what_is_detached(
    tmp_path: Path,
) -> None:
    """Also edge 447 and 449: a detached one is adopted with its pid, and outlives SIGKILL too."""
    with in_background(tmp_path, config="engine: { stop_timeout: 1s }\n") as home:
        home.write("slow.pipo", SLOW)
        home.write("kept.pipo", KEPT)
        home.told("engine", "start")
        kept = home.told("start", "kept.pipo", "--detached")["pid"]
        home.told("start", "slow.pipo")
        for n in range(3):
            push(home, "slow", {"n": n})

        # Gone without a word: attached pipelines are suspended, for the next engine to resume.
        first = engine(home)
        assert first is not None
        os.kill(first["pid"], signal.SIGKILL)
        wait_for(lambda: running(home) == ["kept"] and checkers(home) == ["staying"])
        assert home.pipeline_pid("kept") == kept

        before_ms = time.time() * 1000
        told = home.told("engine", "start", "--ttl", "2s")
        assert before_ms + 2000 < told["ttl_expires_at"] < time.time() * 1000 + 2000
        wait_for(lambda: engine(home) is None and running(home) == ["kept"], deadline_s=180)
        assert sorted(one["data"]["n"] for one in lines(home.workspace / "slow.jsonl")) == [0, 1, 2]
        listed = home.told("status")
        assert listed["engine"] == "down"
        assert {p["name"]: (p["state"], p["stats"]["pending"]) for p in listed["pipelines"]} == {
            "kept": ("running", 0),
            "slow": ("stopped", 0),
        }
        assert stopped_by(home, "slow") == "pipeline.stopped"

        # The detached one is the same process, has a checker, and ends by its own lifetime.
        assert home.pipeline_pid("kept") == kept
        for n in range(2):
            assert home.told("push", "kept", "--data", json.dumps({"n": n}))["engine"] == "down"
        wait_for(lambda: running(home) == [])
        assert home.told("status", "kept")["state"] == "completed"
        assert query(home.workspace / "kept.db", "SELECT count(*) FROM t") == [[2]]
        wait_for(lambda: checkers(home) == [])


@pytest.mark.seed("L024")
def test_an_engines_ttl_from_its_settings(tmp_path: Path) -> None:
    with in_background(tmp_path, config="engine: { ttl: 1500ms }\n") as home:
        told = home.told("engine", "start")
        assert told["ttl_expires_at"] is not None
        wait_for(lambda: engine(home) is None)
        down = home.told("engine", "stop")
        assert (down["stopped"], down["engine"]) == (False, "down")
        log = (home.home / "logs/services/engine.log").read_text()
        assert "the engine's ttl of 1.5s is over" in log
