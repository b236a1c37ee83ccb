"""R41 for what goes out over HTTP: a secret in a URL, a header or a bot's token leaves by no error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import outcome, running
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, journal_of
from tests.system.test_report_41 import MARK, forms, texts_of

pytestmark = pytest.mark.slow

SECRETS = {
    "PW": f"{MARK}pw",
    "PATHTOK": f'{MARK}p"a%th/d é\\z+',
    "HDR": f"{MARK}hdr &=?",
    "BOT": f"12345:{MARK}bot",
}
HEAD = """\
secrets: {{ pw: env:PW, path: env:PATHTOK, qry: "file:{file}", hdr: env:HDR, bot: env:BOT }}
input: {{ via: push }}
"""
WITH = (
    '{{ url: "%s://user:${{secrets.pw}}@127.0.0.1:%s/%s/${{secrets.path}}?token=${{secrets.qry}}",'
    ' headers: {{ Authorization: "Bearer ${{secrets.hdr}}" }} }}'
)
POLICY = "  on_error: {{ retry: 1, delay: 0s }}\n"


def to_http(scheme: str, port: int | str, path: str) -> str:
    settings = WITH % (scheme, port, path)
    return f"output:\n  from: input\n  to: http\n  with: {settings}\n{POLICY}"


def pipelines(port: int) -> dict[str, str]:
    """Each fails where a secret stands in what was asked for; the last two are watched failing."""
    return {
        "refused": to_http("http", 9, "hook"),
        "echoed": to_http("http", port, "echo"),
        "dropped": to_http("http", port, "drop"),
        "untrusted": to_http("https", port, "hook"),
        "moved": to_http("http", port, "moved"),
        "template": to_http("http", port, "${{lower(data.n) + lower(7)}}"),
        "followed": to_http("http", port, "kept")
        + f"delivered:\n  check: follow_up\n  with: {WITH % ('http', port, 'echo')}\n  within: 300ms\n",
        "unfollowed": to_http("http", port, "kept")
        + f"delivered:\n  check: follow_up\n  with: {WITH % ('http', 9, 'x')}\n  within: 300ms\n",
        "message": "output: {{ from: input, to: telegram, with: {{ chat_id: 1, text: t }} }}\n",
        "token": 'output: {{ from: input, to: telegram, with: {{ chat_id: 1, token: "${{secrets.bot}}" }} }}\n',
    }


def echo(got: Got) -> Reply:
    """A refusal that says everything that was sent, as such services do."""
    said = {"url": got.target, "headers": dict(got.headers), "padding": "x" * 60}
    return Reply(401, json.dumps(said))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("requests")
    secret = folder / "secret.txt"
    secret.write_text(f"{MARK}file\n")
    with Receiver() as receiver:
        receiver.fallback = route
        home = folder / "home"
        home.mkdir()
        bot = {"token": f"777:{MARK}own", "api": receiver.url}
        (home / "bots.json").write_text(
            json.dumps(
                {"telegram": {"default": "a", "bots": {"a": bot, "b": {**bot, "token": "env:BOT"}}}}
            )
        )
        texts = {
            name: (HEAD + text).format(file=secret)
            for name, text in pipelines(receiver.port).items()
        }
        with running(folder, texts, env={**SECRETS, "PIPO_LOG_LEVEL": "debug"}) as made:
            yield made


def route(got: Got) -> Reply:
    """What the first part of the path asks for: it is followed by secrets."""
    if got.path.startswith("/drop"):
        return Reply(drops="before")
    if got.path.startswith("/moved"):
        return Reply(302, headers={"Location": f"http://127.0.0.1:9{got.target}"})
    if got.path.startswith("/kept"):
        return Reply(200)
    if got.path.startswith("/bot"):
        return Reply(404, json.dumps({"ok": False, "description": f"no {got.target} here"}))
    return echo(got)


def test_no_secret_leaves(stack: Stack) -> None:
    names = list(pipelines(0))
    ends = {name: outcome(stack, name, {"n": "x"}) for name in names}
    for name, end in ends.items():
        assert end["state"] == "dead_lettered", (name, end)
    said: list[str] = []
    for name, end in ends.items():
        id = end["packet_id"]
        for words in (("status", name), ("inspect", name, id), ("dlq", name)):
            if name in ("echoed", "followed", "message"):
                done = stack.pipo(*words)
                said.append(done.stdout + done.stderr)
        for path in ("", "/packets", f"/packets/{id}", "/events", "/logs"):
            said.append(json.dumps(stack.get(f"/api/pipelines/{name}{path}"), ensure_ascii=False))
        said.append(texts_of(journal_of(stack.home, name)))
        assert id in said[-1]
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
    told: dict[str, Any] = {
        name: outcome(stack, name, {"n": "x"})["error"] for name in pipelines(0)
    }
    message = {name: error["message"] for name, error in told.items()}
    assert message["refused"].startswith(
        "POST http://127.0.0.1:9/hook/***?token=*** failed: no connection: Connection refused"
    )
    assert told["refused"]["attempts"] == 2
    assert "/echo/***?token=*** answered 401: " in message["echoed"]
    assert "the connection was closed without an answer" in message["dropped"]
    assert message["untrusted"].startswith("POST https://127.0.0.1:")
    assert "no TLS connection" in message["untrusted"]
    assert "answered 302 (it redirects to http://127.0.0.1:9/moved/***" in message["moved"]
    assert "lower" in message["template"]
    assert "GET http://127.0.0.1:" in message["followed"]
    assert "answered 401" in message["followed"]
    assert (
        "GET http://127.0.0.1:9/x/***?token=*** failed: no connection: Connection refused"
        in message["unfollowed"]
    )
    for name in ("message", "token"):
        assert message[name].startswith("sendMessage was answered 404: no /bot***/sendMessage here")


def test_no_secret_stands_in_a_command_line(stack: Stack) -> None:
    for pid in stack.pids():
        assert MARK.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
