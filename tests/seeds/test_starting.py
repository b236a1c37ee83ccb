"""Starting in the background: the chain as it is printed, and a ttl for one start."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.background import Background, in_background
from tests.packets import push
from tests.stack import free_ports, journal_of, query, reserve, wait_for

pytestmark = pytest.mark.slow

INTAKE = """\
pipo: 1
name: people-intake
input:
  via: http
  with: { path: /people }
nodes:
  clean:
    from: input
    transform: map
    with:
      data:
        name: "${trim(data.name)}"
        email: "${lower(trim(data.email))}"
output:
  from: clean
  to: pipeline
  with: { pipeline: people-store }
  on_error: { retry: 10, backoff: exponential, delay: 1s, max_delay: 30s }
delivered:
  check: downstream        # wait until people-store has written and verified it
  within: 2m
"""
STORE = """\
pipo: 1
name: people-store
inputs:
  intake:
    via: pipeline
    with: { from: [people-intake] }
    validate:
      - exists(data.email)
  manual:
    via: push
output:
  from: [intake, manual]
  to: sqlite
  with:
    path: ./data/people.db
    table: people
    create: true
    mode: upsert
    key: email
    columns:
      email: "${data.email}"
      name: "${data.name}"
delivered:
  check: record_exists
  with:
    where: { email: "${data.email}" }
"""
PRINTED = (
    "pipo start people-store.pipo",
    "pipo start people-intake.pipo --listen 8790",
    """\
curl -X POST localhost:8790/in/people-intake/people \\
  -H 'content-type: application/json' -d '{"name": " Ada ", "email": "Ada@Example.com"}'""",
)


@pytest.fixture
def home(tmp_path: Any) -> Iterator[Background]:
    with in_background(tmp_path) as made:
        yield made


def typed(home: Background, text: str) -> str:
    done = home.shell(text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.seed("C003")
def test_the_chain_as_it_is_printed(home: Background) -> None:
    """Its port is another one only where somebody has that of the page."""
    home.write("people-store.pipo", STORE)
    home.write("people-intake.pipo", INTAKE)
    port = 8790 if reserve(8790) else free_ports(1)
    store, intake, curl = (line.replace("8790", str(port)) for line in PRINTED)
    assert typed(home, store).startswith("started people-store (pid ")
    assert typed(home, intake).startswith("started people-intake (pid ")
    answer = json.loads(typed(home, curl))
    assert answer["state"] == "accepted"
    for name in ("people-store", "people-intake"):
        wait_for(lambda: home.stats(name).get("delivered") == 1, what=home.output)  # noqa: B023
    rows = query(home.workspace / "data/people.db", "SELECT email, name FROM people")
    assert rows == [["ada@example.com", "Ada"]]
    for name in ("people-store", "people-intake"):
        states = query(journal_of(home.home, name), "SELECT state FROM units")
        assert states == [["delivered"]]
    # The port is told where it is asked for, and the gateway serves the same input.
    assert home.entry("people-intake")["listen"] == port
    assert home.told("status", "people-intake")["listen"] == port
    assert status(home, "people-store")["listen"] is None
    typed(home, curl.replace(f":{port}/", f":{home.port}/").replace("Ada", "Bo"))
    wait_for(lambda: home.stats("people-store").get("delivered") == 2, what=home.output)


# ── a ttl for one start ──────────────────────────────────────────────────────

HOUR_MS = 3_600_000
NIGHTLY = """\
pipo: 1
name: nightly-import
lifetime: { ttl: 2h, on_end: drain, drain_timeout: 2s }
input: { via: push }
output: { from: input, to: stdout }
delivered: { check: external, within: 1h }
"""


def status(home: Background, name: str) -> dict[str, Any]:
    """The pipeline's entry."""
    found: dict[str, Any] = home.get(f"/api/pipelines/{name}")
    return found


def events(home: Background, name: str, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """When each event of a kind was journaled, and its detail, oldest first."""
    sql = f"SELECT at, CAST(detail AS TEXT) FROM events WHERE type = '{kind}' ORDER BY seq"
    found = query(journal_of(home.home, name), sql)
    return [(at, json.loads(detail or "{}")) for at, detail in found]


def ends_at(home: Background, name: str) -> Any:
    """When the pipeline is to end; told on a clock that is no finer than a few milliseconds."""
    return pytest.approx(status(home, name)["lifetime"]["ends_at"], abs=100)


def started_at(home: Background, name: str) -> int:
    """When the newest run began."""
    return events(home, name, "pipeline.started")[-1][0]


@pytest.mark.seed("L021")
@pytest.mark.seed("L022")
@pytest.mark.seed("L023")
def test_a_ttl_for_one_start(home: Background) -> None:
    name = "nightly-import"
    home.write(f"{name}.pipo", NIGHTLY)

    # The commands of the page; a ttl counts from the start, a restart begins a new lifetime.
    typed(home, f"pipo start {name}.pipo --ttl 30m")
    assert status(home, name)["lifetime"]["ttl"] == "30m"
    assert started_at(home, name) + HOUR_MS // 2 == ends_at(home, name)
    assert "restarted nightly-import (pid " in typed(home, f"pipo restart {name} --ttl 1h")
    end = started_at(home, name) + HOUR_MS
    assert end == ends_at(home, name)
    assert home.entry(name)["ttl"] == "1h"

    # A crash, and a host that finds it alive, keep the ttl and what it counts from.
    before = status(home, name)
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(
        lambda: (
            (now := status(home, name))["pid"] not in (None, before["pid"])
            and now["state"] == "running"
        ),
        what=home.output,
    )
    crashed = status(home, name)
    log = home.pipo("logs", name).stdout
    assert "after=" not in log.split("pipeline started")[2]
    assert 'after="the process ended with signal 9' in log.rpartition("pipeline started")[2]
    assert (end, "1h", "1h") == (ends_at(home, name), crashed["ttl"], home.entry(name)["ttl"])
    # It came back a second later at the earliest: that end is not counted from there.
    assert started_at(home, name) - (end - HOUR_MS) > 800
    runner = home.service_pid("runner")
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    wait_for(lambda: home.service_pid("runner") not in (None, runner), what=home.output)
    adopted = wait_for(
        lambda: now if (now := status(home, name))["state"] == "running" else None,
        what=home.output,
    )
    assert (adopted["pid"], adopted["ttl"], end) == (crashed["pid"], "1h", ends_at(home, name))

    # A later start is back at the file's; neither the entry nor the journal names a ttl.
    assert home.pipo("stop", name, "--now").returncode == 0
    typed(home, f"pipo start {name}")
    assert status(home, name)["lifetime"]["ttl"] == "2h"
    assert started_at(home, name) + 2 * HOUR_MS == ends_at(home, name)
    assert "ttl" not in home.entry(name)
    assert status(home, name)["ttl"] is None
    said = [detail.get("ttl") for _, detail in events(home, name, "pipeline.started")]
    assert said == ["30m", "1h", "1h", None]

    # How it ends is the file's all the same: a drain, for as long as that says.
    typed(home, f"pipo restart {name} --ttl 8s")
    began_at = started_at(home, name)
    # Over REST: the start of a command may take longer than that life.
    push(home, name, 1)
    wait_for(lambda: status(home, name)["state"] == "completed", what=home.output)
    ((reached_at, detail),) = events(home, name, "pipeline.lifetime")
    (completed_at, _) = events(home, name, "pipeline.completed")[-1]
    assert detail["reason"] == "ttl"
    assert 8_000 <= reached_at - began_at < 60_000
    assert 2_000 <= completed_at - reached_at < 60_000
    assert home.stats(name)["pending"] == 1


def test_a_ttl_that_is_none_changes_nothing(home: Background) -> None:
    """Edge 322: nothing starts, not even a stack; on a restart nothing stops."""
    name = "nightly-import"
    home.write(f"{name}.pipo", NIGHTLY)
    for ttl in ("0s", "soon"):
        done = home.pipo("start", f"{name}.pipo", "--ttl", ttl)
        assert (done.returncode, done.stderr[:10]) == (1, "error: ttl")
    assert not (home.home / "run").exists()
    typed(home, f"pipo start {name}.pipo")
    pid = home.entry(name)["pid"]
    assert home.pipo("restart", name, "--ttl", "0s").returncode == 1
    body = json.dumps({"ttl": "soon"}).encode()
    assert home.request(f"/api/pipelines/{name}/restart", body)[0] == 400
    assert home.entry(name)["pid"] == pid
