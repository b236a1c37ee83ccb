"""Sends packets into a running stack and waits for what becomes of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.stack import BARE_PYTHON, Stack, wait_for

SETTLED = ("delivered", "filtered", "dead_lettered", "rejected")


@contextmanager
def running(
    folder: Path,
    pipelines: Mapping[str, str],
    *,
    env: Mapping[str, str] | None = None,
    config: str = "",
    before: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """One stack with many pipelines, stopped cleanly at the end.

    `pipelines` maps names to what stands below `pipo: 1` and `name:`; `before` maps
    database files of the workspace to the SQL that makes them first.
    """
    stack = Stack(folder, env=env, config=config)
    for name, text in pipelines.items():
        stack.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    for path, statements in (before or {}).items():
        run_sql(stack.workspace / path, statements)
    try:
        yield stack.start()
        assert stack.stop() == 0
    finally:
        stack.kill_all()


def push(stack: Stack, pipeline: str, data: Any, **words: str) -> str:
    """The id of a packet pushed over REST."""
    status, _, answer = stack.request(
        f"/api/pipelines/{pipeline}/push", json.dumps({"data": data, **words}).encode()
    )
    assert status == 200, answer
    return str(json.loads(answer)["packet_id"])


def operate(stack: Stack, pipeline: str, what: str, **fields: Any) -> dict[str, Any]:
    """An operation over REST that must go well, such as `pause`: a fifth of a command's cost."""
    body = json.dumps(fields).encode()
    status, _, answer = stack.request(f"/api/pipelines/{pipeline}/{what}", body)
    assert status in (200, 202), (status, answer)
    found: dict[str, Any] = json.loads(answer)
    return found


def inspect(stack: Stack, pipeline: str, id: str) -> dict[str, Any]:
    """What `pipo inspect --json` says, over REST."""
    found: dict[str, Any] = stack.get(f"/api/pipelines/{pipeline}/packets/{id}")
    return found


def packet(stack: Stack, pipeline: str, id: str) -> dict[str, Any]:
    """The packet as it is now."""
    found: dict[str, Any] = inspect(stack, pipeline, id)["packet"]
    return found


def settled(stack: Stack, pipeline: str, id: str, *, deadline_s: float = 60.0) -> dict[str, Any]:
    """The packet once it has an end."""
    return wait_for(
        lambda: p if (p := packet(stack, pipeline, id))["state"] in SETTLED else None,
        deadline_s=deadline_s,
        what=lambda: f"{pipeline} settles {id}: {packet(stack, pipeline, id)}",
    )


def outcome(stack: Stack, pipeline: str, data: Any) -> dict[str, Any]:
    """The end of one packet pushed now."""
    return settled(stack, pipeline, push(stack, pipeline, data))


def run_sql(database: Path, statements: str) -> None:
    """Runs statements in a database, as another process would."""
    database.parent.mkdir(parents=True, exist_ok=True)
    program = (
        "import sqlite3,sys; c=sqlite3.connect(sys.argv[1],timeout=60);"
        "c.executescript(sys.argv[2]); c.close()"
    )
    command = [*BARE_PYTHON, "-c", program, str(database), statements]
    subprocess.run(command, check=True, timeout=60)
