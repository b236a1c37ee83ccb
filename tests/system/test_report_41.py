"""R41: a secret leaves by no log, error, listing, metric, answer or journal."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import outcome, push, running, settled
from tests.stack import Stack, journal_of, query

pytestmark = pytest.mark.slow

MARK = "s3cr3t-"
SECRETS = {
    "PW": f"{MARK}pw",
    "KEY": f'{MARK}q"uo%te/d é\\z',
    "HMAC": f"{MARK}hmac",
    "BROKEN": f"{MARK}broken",
}
HEAD = """\
secrets: {{ pw: env:PW, key: env:KEY, hmac: env:HMAC, broken: env:BROKEN, file: "file:{file}" }}
"""
# Each fails where a secret stands in what it was asked to do.
FAILING = {
    # The destination's folder is a file, and its name holds secrets.
    "path": """\
input: {{ via: push }}
output:
  from: input
  to: file
  with: {{ path: "./block/${{secrets.pw}}/${{secrets.file}}.jsonl" }}
  on_error: {{ retry: 1, delay: 0s, message: "no: ${{error.message}}" }}
""",
    "database": """\
input: {{ via: push }}
nodes:
  tell:
    from: input
    tap: log
    with: {{ level: warn, message: "key ${{secrets.key}} and ${{secrets.file}} for ${{data.n}}" }}
output:
  from: tell
  to: sqlite
  with: {{ path: "./block/${{secrets.key}}.db", table: t, create: true }}
""",
    "check": """\
input: {{ via: push }}
output: {{ from: input, to: sqlite, with: {{ path: ./check.db, table: t, create: true }} }}
delivered:
  check: query
  with: {{ sql: "SELECT '${{secrets.pw}}' = 1 FROM none" }}
  within: 300ms
""",
    "template": """\
input: {{ via: push }}
nodes:
  shape:
    from: input
    transform: map
    with: {{ data: "${{lower(data.n) + secrets.broken + lower(7)}}" }}
output: {{ from: shape, to: stdout }}
""",
    "signed": """\
input:
  via: http
  with:
    path: /signed
    auth: {{ hmac: {{ header: X-Sign, secret: "${{secrets.hmac}}" }}, header: X-Token, equals: "${{secrets.pw}}" }}
output: {{ from: input, to: stdout }}
""",
}
# Each works, and keeps a result and evidence of what it did.
WORKING = {
    "seen": """\
input: {{ via: push }}
output: {{ from: input, to: sqlite, with: {{ path: "./${{secrets.pw}}.db", table: t, create: true }} }}
delivered:
  check: query
  with: {{ sql: "SELECT ? = ?", params: ["${{secrets.key}}", "${{secrets.key}}"] }}
""",
}
ECHO = """\
input: {{ via: push, validate: ["data.n != data.n || data.n == 1"], on_invalid: {{ message: "not ${{data.n}}" }} }}
output: {{ from: input, to: file, with: {{ path: ./echo.jsonl }} }}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "workspace").mkdir()
    (folder / "workspace/block").write_text("a file where a folder should be")
    secret = folder / "secret.txt"
    secret.write_text(f"{MARK}file\n")
    pipelines = {
        name: (HEAD + text).format(file=secret)
        for name, text in {**FAILING, **WORKING, "echo": ECHO}.items()
    }
    with running(folder, pipelines, env=SECRETS) as made:
        yield made


def forms(value: str) -> set[str]:
    """A value as it may stand in a log, a URL, JSON, or a header."""
    return {
        value,
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        base64.b64encode(value.encode()).decode(),
    }


def texts_of(journal: Path) -> str:
    """Every text column of a journal but the version's own source."""
    tables = [row[0] for row in query(journal, "SELECT name FROM sqlite_schema WHERE type='table'")]
    found: list[Any] = []
    for table in tables:
        columns = query(journal, f"SELECT name FROM pragma_table_info('{table}')")
        wanted = ", ".join(f'CAST("{name}" AS TEXT)' for (name,) in columns)
        found += query(journal, f'SELECT {wanted} FROM "{table}"')
    return json.dumps(found, ensure_ascii=False)


def test_no_secret_leaves(stack: Stack) -> None:
    ends = {
        name: outcome(stack, name, {"n": "x"}) for name in ("path", "database", "check", "template")
    }
    for name, end in ends.items():
        assert end["state"] == "dead_lettered", (name, end)
    for name in WORKING:
        ends[name] = outcome(stack, name, {"n": "x"})
        assert ends[name]["state"] == "delivered", (name, ends[name])
    said = []
    for headers in ({}, {"X-Token": SECRETS["PW"]}, {"X-Token": SECRETS["PW"], "X-Sign": "0" * 64}):
        status, answered, body = stack.request("/in/signed/signed", b"{}", headers=headers)
        assert status == 401
        said.append(f"{answered}{body.decode()}")
    for name, end in ends.items():
        id = end["packet_id"]
        for words in (("status", name), ("packets", name), ("inspect", name, id), ("logs", name)):
            if name not in ("database", "seen"):
                break  # The answers below hold the same for the others.
            done = stack.pipo(*words)
            assert done.returncode == 0
            said.append(done.stdout + done.stderr)
        for path in ("", "/packets", f"/packets/{id}", "/events", "/logs"):
            answer = stack.get(f"/api/pipelines/{name}{path}")
            said.append(json.dumps(answer, ensure_ascii=False))
        said.append(texts_of(journal_of(stack.home, name)))
        assert id in said[-1]
    said.append(stack.pipo("check", ".").stdout)
    said.append(stack.request("/metrics", method="GET")[2].decode())
    said.append(stack.output())
    said += [path.read_text(errors="replace") for path in stack.home.glob("logs/**/*.log")]
    everything = "\n".join(said)
    for value in [*SECRETS.values(), f"{MARK}file"]:
        for form in forms(value):
            assert form not in everything, form
    assert MARK not in everything
    assert "***" in everything


def test_what_remains_is_useful(stack: Stack) -> None:
    message = outcome(stack, "path", {"n": 1})["error"]["message"]
    assert message.startswith("no: ")
    assert f"{stack.workspace}/block/***/***.jsonl" in message
    message = outcome(stack, "database", {"n": 1})["error"]["message"]
    assert message.startswith(f"{stack.workspace}/block: ")
    message = outcome(stack, "check", {"n": 1})["error"]["message"]
    assert "no such table: none" in message
    assert "for 1" in stack.pipo("logs", "database").stdout


def test_a_packets_own_data_is_its_own(stack: Stack) -> None:
    """It is kept as it came, and masked only where it is echoed."""
    id = push(stack, "echo", {"n": 1, "key": SECRETS["PW"]})
    assert settled(stack, "echo", id)["state"] == "delivered"
    assert SECRETS["PW"] in (stack.workspace / "echo.jsonl").read_text()
    done = stack.pipo("push", "echo", "--data", json.dumps({"n": SECRETS["PW"]}))
    assert done.returncode == 1
    assert SECRETS["PW"] not in done.stderr + done.stdout
    assert "not ***" in done.stderr


def test_no_secret_stands_in_a_command_line(stack: Stack) -> None:
    for pid in stack.pids():
        assert MARK.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
