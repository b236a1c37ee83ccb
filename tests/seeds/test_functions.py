"""Steps that are functions of the author's own, through a real stack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

SECRET = 's3cr3t-"%/-value'
MODULE = """
import asyncio, logging, os, sys
from . import prices

def act(data, meta):
    return ACTS[data["do"]](data, meta)

def shape(data, meta):
    return {"n": data["n"], "tax": prices.TAX, "node": meta["node"], "attempt": meta["attempt"]}

async def later(data, meta):
    await asyncio.sleep(0)
    return {"later": data["n"]}

def unfit(data, meta): return {"all": {1}}
def exits(data, meta): os._exit(3)
def leaves(data, meta): sys.exit("enough")
def raises(data, meta): raise ValueError(data["text"])

def tells(data, meta):
    print("printed", data["text"])
    logging.error("logged %s", data["text"])
    sys.stderr.write(data["text"])
    return {"told": True}

ACTS = {f.__name__: f for f in (shape, later, unfit, exits, leaves, raises, tells)}
ACTS["nothing"] = lambda data, meta: None
"""
PIPELINES = {
    "acts": """input: { via: push }
secrets: { tok: env:FN_TOK }
fn: ./acts.fn.py
concurrency: 2
nodes:
  acted: { from: input, transform: fn.act, with: { any: map } }
output: { from: acted, to: file, with: { path: ./acts.jsonl } }
""",
    "edited": """input: { via: push }
fn: ./lib/edited.fn.py
nodes:
  made: { from: input, transform: fn.make }
output: { from: made, to: file, with: { path: ./edited.jsonl } }
""",
    "big": """input: { via: push }
fn: ./big.fn.py
nodes:
  made: { from: input, transform: fn.same }
output: { from: made, to: file, with: { path: ./big.jsonl } }
""",
}
BEFORE_FIX = "def make(data):\n    return {'n': data['n'] // data['by'], 'code': 1}\n"
AFTER_FIX = "from .how import divided\ndef make(data):\n    return divided(data)\n"
HOW = "def divided(data):\n    return {'n': data['n'] // (data['by'] or 1), 'code': 2}\n"
LARGE = 5_000_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("functions")
    workspace = folder / "workspace"
    (workspace / "lib").mkdir(parents=True)
    (workspace / "acts.fn.py").write_text(MODULE)
    (workspace / "prices.py").write_text("TAX = 2\n")
    (workspace / "lib" / "edited.fn.py").write_text(BEFORE_FIX)
    (workspace / "big.fn.py").write_text(f"PAD = '{'x' * LARGE}'\ndef same(data): return data\n")
    with running(folder, PIPELINES, env={"FN_TOK": SECRET}) as made:
        yield made


def error_of(stack: Stack, data: Any) -> str:
    found = outcome(stack, "acts", data)
    assert found["state"] == "dead_lettered", found
    assert found["error"]["code"] == "node.failed"
    return str(found["error"]["message"])


def test_a_function_makes_the_data(stack: Stack) -> None:
    made = outcome(stack, "acts", {"do": "shape", "n": 10**30})
    assert made["state"] == "delivered"
    shown = inspect(stack, "acts", made["packet_id"])
    assert [step["step"] for step in shown["steps"]] == ["input", "acted", "$output", "$verify"]
    outcome(stack, "acts", {"do": "later", "n": 4})
    written = [line["data"] for line in lines(stack.workspace / "acts.jsonl")]
    assert {"n": 10**30, "tax": 2, "node": "acted", "attempt": 1} in written
    assert {"later": 4} in written


def test_each_misdeed_fails_its_own_packet(stack: Stack) -> None:
    assert error_of(stack, {"do": "nothing"}) == (
        "fn.act returned nothing; return the new data, or pipo.NULL for null"
    )
    unfit = "fn.act returned what JSON cannot hold: data.all is a set"
    assert error_of(stack, {"do": "unfit"}) == unfit
    assert error_of(stack, {"do": "exits"}) == "fn.act ended its process (exit status 3)"
    assert error_of(stack, {"do": "leaves"}).startswith("fn.act called sys.exit('enough') (acts.fn")
    missing = error_of(stack, {"do": "shape"})
    assert missing.startswith("fn.act raised KeyError: 'n' (acts.fn.py:9 in shape, from acts.fn.py")
    assert outcome(stack, "acts", {"do": "later", "n": 5})["state"] == "delivered"


def test_secrets_are_masked_in_prints_and_errors(stack: Stack) -> None:
    """R41: an fn that raises `ValueError(secret)`."""
    told = outcome(stack, "acts", {"do": "tells", "text": SECRET})
    assert told["state"] == "delivered"
    assert error_of(stack, {"do": "raises", "text": SECRET}).startswith(
        "fn.act raised ValueError: *** (acts.fn.py:"
    )
    # Half a secret is one too.
    cut = error_of(stack, {"do": "raises", "text": "x" * 3_960 + SECRET * 3})
    assert "s3cr3t" not in cut
    log = stack.home / "logs" / "acts.log"
    said = wait_for(lambda: text if "logged" in (text := log.read_text()) else "")
    mark = f"action=fn.printed node=acted packet={told['packet_id']}"
    assert f"info  printed ***  {mark}" in said
    assert f"error logged ***  {mark}" in said
    assert f"info  ***  {mark}" in said
    assert "s3cr3t" not in said
    events = query(journal_of(stack.home, "acts"), "SELECT error FROM units UNION ALL"
                   " SELECT detail FROM events WHERE type != 'packet.accepted'")  # fmt: skip
    assert "s3cr3t" not in json.dumps(events)


@pytest.mark.seed("R064", "R066")
def test_packets_of_a_version_run_its_code_and_newer_ones_the_newer(stack: Stack) -> None:
    bad = outcome(stack, "edited", {"n": 6, "by": 0})
    assert (bad["state"], bad["version"]) == ("dead_lettered", 1)
    (stack.workspace / "lib" / "edited.fn.py").write_text(AFTER_FIX)
    (stack.workspace / "lib" / "how.py").write_text(HOW)
    # What runs is what was kept, until the restart.
    still = outcome(stack, "edited", {"n": 6, "by": 2})
    assert still["version"] == 1
    restarted = stack.pipo("restart", "edited")
    assert restarted.returncode == 0, restarted.stderr
    fixed = outcome(stack, "edited", {"n": 8, "by": 2})
    assert (fixed["state"], fixed["version"]) == ("delivered", 2)
    written = [line["data"] for line in lines(stack.workspace / "edited.jsonl")]
    assert written == [{"n": 3, "code": 1}, {"n": 4, "code": 2}]
    # A replay keeps its version, and so its code.
    id = bad["packet_id"]
    assert stack.pipo("dlq", "replay", "edited", id).returncode == 0
    again = wait_for(
        lambda: p if (p := settled(stack, "edited", id))["updated_at"] > bad["updated_at"] else None
    )
    assert (again["state"], again["version"]) == ("dead_lettered", 1)
    assert again["error"]["message"] == bad["error"]["message"]
    assert "ZeroDivisionError" in bad["error"]["message"]
    # Its data goes through the fixed pipeline as a new packet.
    shown = json.loads(stack.pipo("inspect", "edited", id, "--json").stdout)
    data = shown["packet"]["data"]
    pushed = stack.pipo("push", "edited", "--data", json.dumps(data))
    assert pushed.returncode == 0, pushed.stderr
    assert stack.pipo("dlq", "purge", "edited", id).returncode == 0
    stats = stack.settle("edited")
    assert (stats["delivered"], stats["dead_lettered"]) == (3, 0)
    assert lines(stack.workspace / "edited.jsonl")[-1]["data"] == {"n": 6, "code": 2}


def test_a_large_packet_passes_a_large_module(stack: Stack) -> None:
    """R47: 5 MB of data, and 5 MB of source in a version."""
    id = push(stack, "big", {"p": "y" * LARGE})
    assert settled(stack, "big", id)["state"] == "delivered"
    (written,) = lines(stack.workspace / "big.jsonl")
    assert written["data"] == {"p": "y" * LARGE}
    (size,) = query(
        journal_of(stack.home, "big"), "SELECT length(files) FROM versions WHERE version = 1"
    )
    assert size[0] > LARGE


def test_a_module_that_does_not_import_refuses_the_start(stack: Stack) -> None:
    (stack.workspace / "broken.fn.py").write_text("import nothing_like_it\ndef f(data): ...\n")
    file = stack.workspace / "broken.pipo"
    file.write_text(
        "pipo: 1\nname: broken\ninput: { via: push }\nfn: ./broken.fn.py\n"
        "nodes: { f: { from: input, tap: fn.f } }\noutput: { from: f, to: stdout }\n"
    )
    try:
        refused = stack.pipo("start", str(file))
        assert refused.returncode == 1
        said = refused.stdout + refused.stderr
        assert "P059" in said
        assert "broken.fn.py line 1: ModuleNotFoundError" in said
        assert not journal_of(stack.home, "broken").exists()
    finally:
        file.unlink()
