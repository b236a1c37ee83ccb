"""R42: every mistake of a file in one run, each at its place with what to do; nothing starts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.packets import running
from tests.stack import Stack

pytestmark = pytest.mark.slow

WRONG = """\
pipo: 1
name: wrong
input:
  via: htpp
  with: { path: /w }
nodes:
  keep: { from: input, filter: "data.amount >" }
  norm: { from: kep, transform: fn.nope }
fn: ./missing.fn.py
ouput: { from: norm, to: sqlite, with: { path: ./out/w.db } }
concurrency: many
buffer: { max: -1 }
retention: { data: fast }
delivered: { check: file_exists, within: 10 }
"""
FOUND = [
    (1, 1, "P002", "output"),
    (4, 8, "P002", "did you mean `http`"),
    (7, 46, "P040", "expression"),
    (8, 17, "P010", "did you mean `keep`"),
    (9, 5, "P014", "missing.fn.py"),
    (10, 1, "P002", "did you mean `output`"),
    (11, 14, "P002", "a whole number"),
    (12, 16, "P002", "at least 1"),
    (13, 20, "P002", "5m"),
    (14, 42, "P002", "5m"),
]
HEAD = "pipo: 1\nname: wrong\n"
PUSHED = "input: { via: push }\n"
OUT = "output: { from: input, to: stdout }\n"
OTHERS = {
    "a list": (HEAD + "input: [a]\n" + OUT, "3:8", "P002", "takes a map, found a list"),
    "empty nodes": (HEAD + PUSHED + "nodes:\n" + OUT, "4:7", "P002", "takes a map"),
    "four fields": (
        HEAD + 'input: { via: schedule, with: { cron: "* * * *" } }\n' + OUT,
        "3:39",
        "P038",
        "has 4 fields, not 5",
    ),
    "one name twice": (
        HEAD + PUSHED + "nodes:\n  a: { from: input, filter: 'true' }\n"
        "  a: { from: input, filter: 'true' }\noutput: { from: a, to: stdout }\n",
        "6:3",
        "P001",
        "twice",
    ),
    "a cycle": (
        HEAD + PUSHED + "nodes:\n  a: { from: b, filter: 'true' }\n"
        "  b: { from: a, filter: 'true' }\noutput: { from: b, to: stdout }\n",
        "5:8",
        "P022",
        "back_to",
    ),
    "unknown key": (HEAD + PUSHED + OUT + "conurrency: 3\n", "5:1", "P002", "`concurrency`"),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    text = PUSHED + "output: { from: input, to: file, with: { path: ./out.jsonl } }\n"
    with running(tmp_path_factory.mktemp("wrong"), {"sound": text}) as made:
        yield made


def test_one_run_of_check_lists_everything(stack: Stack) -> None:
    path = stack.write("wrong.pipo", WRONG)
    try:
        plain, structured = (
            stack.pipo("check", "wrong.pipo"),
            stack.pipo("check", "wrong.pipo", "--json"),
        )
    finally:
        path.unlink()
    assert (plain.returncode, structured.returncode) == (1, 1)
    assert "Traceback" not in plain.stdout + plain.stderr
    printed = plain.stdout.splitlines()
    heads, hints = printed[0:20:2], printed[1:20:2]
    for (line, column, code, word), head, hint in zip(FOUND, heads, hints, strict=True):
        assert head.startswith(f"wrong.pipo:{line}:{column}  error  {code}  ")
        assert hint.startswith("  ")
        assert word in head + hint
    [found] = json.loads(structured.stdout)["files"]
    assert [(d["line"], d["col"], d["code"]) for d in found["diagnostics"]] == [
        (line, column, code) for line, column, code, _ in FOUND
    ]


@pytest.mark.parametrize("case", OTHERS)
def test_other_mistakes(stack: Stack, case: str) -> None:
    text, place, code, word = OTHERS[case]
    path = stack.write("wrong.pipo", text)
    try:
        done = stack.pipo("check", "wrong.pipo")
    finally:
        path.unlink()
    assert done.returncode == 1
    [at] = [
        n
        for n, line in enumerate(done.stdout.splitlines())
        if line.startswith(f"wrong.pipo:{place}  error  {code}  ")
    ]
    assert word in "\n".join(done.stdout.splitlines()[at : at + 2])


def test_a_receiver_outside_the_run_is_not_checked(stack: Stack) -> None:
    """C015: a pipeline that is not in the run may run elsewhere."""
    path = stack.write(
        "chained.pipo",
        "pipo: 1\nname: chained\n"
        + PUSHED
        + "output: { from: input, to: pipeline, with: { pipeline: nowhere } }\n",
    )
    try:
        assert stack.pipo("check", "chained.pipo").returncode == 0
    finally:
        path.unlink()


def test_nothing_starts_and_nothing_that_runs_changes(stack: Stack) -> None:
    path = stack.write("wrong.pipo", WRONG)
    pid = stack.pipeline_pid("sound")
    try:
        refusals = [stack.pipo("run", "wrong.pipo"), stack.pipo("start", "wrong.pipo")]
        status, _, answer = stack.request(
            "/api/pipelines", json.dumps({"file": str(path)}).encode()
        )
    finally:
        path.unlink()
    texts = [done.stdout + done.stderr for done in refusals]
    assert [done.returncode for done in refusals] == [1, 1]
    assert status >= 400
    for text in texts:
        assert "Traceback" not in text
        for line, column, code, _ in FOUND:
            assert f"wrong.pipo:{line}:{column}  error  {code}" in text
    found = json.loads(answer)["diagnostics"]
    assert [(d["line"], d["col"], d["code"]) for d in found] == [f[:3] for f in FOUND]
    assert stack.pipeline_pid("sound") == pid
    listed = stack.get("/api/pipelines")["pipelines"]
    assert [one["name"] for one in listed] == ["sound"]
