"""The stack of docker-compose.yml under load, through a restart and to its end.

The tests share one stack and build on each other, in the order they stand here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.load.careful_posts import Ledger, Tally, faults, send

from . import engine

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(3600)]

PIPELINE = "signups-to-sqlite"
PATH = "/in/signups-to-sqlite/signups"
DATABASE = "/workspace/data/signups.db"
CONNECTIONS = 64
SIGNUPS = 10_000
# A stack with nothing in hand: far below its grace of 30 s and the 15 s for steps in hand.
STOP_LIMIT_S = 14.0

COUNT_ROWS = """
import apsw, json, sys
database = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
rows = database.execute("SELECT email, count(*) FROM signups WHERE email LIKE ? GROUP BY email", sys.argv[2:])
print(json.dumps(dict(rows)))
"""


def rows(stack: engine.Project, prefix: str) -> dict[str, int]:
    """How often each key stands in the table, seen by a process of its own."""
    shown = stack.inside("runner", "python3", "-c", COUNT_ROWS, DATABASE, f"{prefix}%")
    found: dict[str, int] = json.loads(shown)
    return found


def stats(stack: engine.Project) -> dict[str, int]:
    token = stack.inside("runner", "cat", "/var/lib/pipo/admin.token").strip()
    entry: dict[str, Any] = stack.get(f"/api/pipelines/{PIPELINE}", token)
    found: dict[str, int] = entry["stats"]
    return found


def wait_for_settling(stack: engine.Project) -> dict[str, int]:
    """The counts, once nothing is pending."""
    engine.wait_until("nothing is pending", lambda: stats(stack)["pending"] == 0, limit_s=300)
    return stats(stack)


async def signups(stack: engine.Project, keys: Iterable[str], ledger: Ledger) -> Tally:
    return await send(
        keys,
        port=stack.ports[0],
        path=PATH,
        connections=CONNECTIONS,
        ledger=ledger,
        limit_s=900,
    )


SENT = """\
pipo: 1
name: sent
input: { via: push, schema: ./n.json }
output: { from: input, to: file, with: { path: ./out.jsonl } }
"""


def from_outside(stack: engine.Project, folder: Path, *words: str) -> dict[str, Any]:
    """What a command answers that is given on this machine, with the admin token."""
    token = folder / "admin.token"
    token.write_text(stack.inside("runner", "cat", "/var/lib/pipo/admin.token"))
    shown = engine.run(
        *(sys.executable, "-m", "pipo_cli.main", "--url", f"http://127.0.0.1:{stack.ports[0]}"),
        *("--token-file", str(token), *words, "--json"),
        environ={"PIPO_HOME": str(folder / "home")},
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def test_the_examples_run_from_the_first_start(stack: engine.Project) -> None:
    engine.wait_until(f"{PIPELINE} is active", lambda: stats(stack)["pending"] == 0, limit_s=300)


@pytest.mark.parametrize("service", engine.SERVICES)
def test_the_service_is_pid_1(stack: engine.Project, service: str) -> None:
    command_line = stack.inside(service, "cat", "/proc/1/cmdline").split("\0")
    assert Path(command_line[0]).name.startswith("python3")
    assert Path(command_line[1]).name == f"pipo-{service}"
    assert "uid=1000(pipo) gid=1000(pipo)" in stack.inside(service, "id")


@pytest.mark.parametrize("service", engine.SERVICES)
def test_only_the_gateway_is_published_and_only_on_loopback(
    stack: engine.Project, service: str
) -> None:
    shown = engine.run(
        *("docker", "inspect", "--format", "{{json .NetworkSettings.Ports}}"),
        stack.container(service),
    )
    bindings = [one for found in json.loads(shown.stdout).values() for one in found or ()]
    wanted = stack.ports if service == "gateway" else ()
    assert sorted(int(one["HostPort"]) for one in bindings) == sorted(wanted)
    assert {one["HostIp"] for one in bindings} <= {"127.0.0.1"}


def test_the_command_line_reaches_it_from_outside(stack: engine.Project, tmp_path: Path) -> None:
    """As docs/containers.md says: over both published ports, with the admin token."""
    listed = from_outside(stack, tmp_path, "status")["pipelines"]
    assert {one["name"] for one in listed} >= {"heartbeat", "people-intake", PIPELINE}


def test_a_file_that_the_containers_do_not_see_is_sent(
    stack: engine.Project, tmp_path: Path
) -> None:
    """Decision 37: with what it names; its relative paths are those of a folder of its own."""
    (tmp_path / "n.json").write_text('{"required": ["n"]}')
    file = tmp_path / "sent.pipo"
    file.write_text(SENT)
    started = from_outside(stack, tmp_path, "start", str(file), "--ttl", "1h")
    assert (started["state"], started["ttl"]) == ("running", "1h")
    assert started["file"].startswith("/var/lib/pipo/pipelines/sent/")
    from_outside(stack, tmp_path, "push", "sent", "--data", '{"n": 1}')
    engine.wait_until(
        "it is written",
        lambda: from_outside(stack, tmp_path, "status", "sent")["stats"]["delivered"] == 1,
        limit_s=120,
    )
    written = stack.inside("runner", "cat", "/workspace/sent/out.jsonl")
    assert json.loads(written)["data"] == {"n": 1}
    from_outside(stack, tmp_path, "stop", "sent")


async def test_every_signup_is_a_row_and_delivered(stack: engine.Project, tmp_path: Path) -> None:
    before = stats(stack)
    ledger = Ledger(tmp_path / "ledger")
    keys = [f"first-{number:05}@example.org" for number in range(SIGNUPS)]
    tally = await signups(stack, keys, ledger)
    ledger.close()
    after = wait_for_settling(stack)

    acknowledged = set(ledger.read())
    assert tally.unknown == set()
    assert acknowledged == set(keys)
    assert faults(acknowledged, set(), rows(stack, "first-")) == []
    assert after["delivered"] - before["delivered"] == SIGNUPS
    assert after["dead_lettered"] == before["dead_lettered"]


async def test_a_restart_of_the_runner_under_load_loses_and_doubles_nothing(
    stack: engine.Project, tmp_path: Path
) -> None:
    before = stats(stack)
    container = stack.container("runner")
    ledger = Ledger(tmp_path / "ledger")
    keys = [f"second-{number:05}@example.org" for number in range(SIGNUPS)]

    async def restart() -> int:
        """Restarts in the midst of the load; how many sign-ups had been acknowledged by then."""
        await ledger.reached(SIGNUPS // 5)
        # By the engine itself: compose takes seconds to begin, and the load goes on meanwhile.
        await asyncio.to_thread(engine.run, "docker", "restart", "--time", "30", container)
        return ledger.count

    async with asyncio.TaskGroup() as group:
        load = group.create_task(signups(stack, keys, ledger), name="load")
        restarted = group.create_task(restart(), name="restart")
    ledger.close()
    tally = load.result()
    after = wait_for_settling(stack)

    acknowledged = set(ledger.read())
    assert restarted.result() < SIGNUPS, "the load was over before the restart was"
    assert tally.refused > 0, "the restart was not noticed"
    assert stack.container("runner") == container
    assert acknowledged | tally.unknown == set(keys)
    assert faults(acknowledged, tally.unknown, rows(stack, "second-")) == []
    assert len(acknowledged) <= after["delivered"] - before["delivered"] <= SIGNUPS
    assert after["dead_lettered"] == before["dead_lettered"]


def test_the_stop_is_clean(stack: engine.Project) -> None:
    stack.compose("stop")
    for service in engine.SERVICES:
        said = stack.logs(service)
        assert stack.state(service)["ExitCode"] == 0, said
        times = []
        for word in ("stopping", "stopped"):
            (line,) = [line for line in said if f"action={word}" in line]
            times.append(datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")))
        took_s = (times[1] - times[0]).total_seconds()
        assert took_s < STOP_LIMIT_S, f"{service}: {took_s:.1f} s"


def test_the_next_start_finds_everything(stack: engine.Project) -> None:
    stack.up()
    engine.wait_until(f"{PIPELINE} is active", lambda: stats(stack)["pending"] == 0, limit_s=300)
    assert len(rows(stack, "first-")) == SIGNUPS
