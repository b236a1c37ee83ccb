"""The telegram input in a real stack: crashes, pauses, one reader for each bot, files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.bot_api import BotApi, text_message
from tests.receiver import Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

TOKEN = "123456:s3cr3t-token"
ROWS = """\
pipo: 1
name: {name}
buffer: {{ max: {buffer} }}
input: {{ via: telegram, validate: ['data.text != "bad"'] }}
output:
  from: input
  to: sqlite
  with:
    path: ./{name}.db
    table: t
    create: true
    columns: {{ packet_id: "${{meta.packet_id}}", text: "${{data.text}}", "from": "${{meta.trigger}}" }}
"""
ECHO = """\
pipo: 1
name: echo
input: { via: telegram }
output: { from: input, to: telegram, with: { photo: "${data.file.path}", text: got it } }
"""


def photo(n: int) -> list[dict[str, Any]]:
    sizes = {"width": 9, "height": 9, "file_size": 5}
    return [{"file_id": f"f{n}", "file_unique_id": f"u{n}", **sizes}]


def rows(name: str, buffer: int = 10000) -> str:
    return ROWS.format(name=name, buffer=buffer)


def set_up(stack: Stack, api: BotApi) -> None:
    stack.home.mkdir(parents=True, exist_ok=True)
    entry = {"token": TOKEN, "api": api.url, "allow": [7]}
    bots = {"telegram": {"default": "main", "bots": {"main": entry}}}
    (stack.home / "bots.json").write_text(json.dumps(bots))


@pytest.fixture
def api(stack: Stack) -> Any:
    with BotApi(TOKEN) as made:
        set_up(stack, made)
        yield made


def kill(stack: Stack, name: str) -> None:
    pid = stack.pipeline_pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def texts(stack: Stack, name: str) -> list[str]:
    database = stack.workspace / f"{name}.db"
    if not database.exists():
        return []
    return [row[0] for row in query(database, "SELECT text FROM t ORDER BY packet_id")]


def some_of(stack: Stack, name: str, before: int) -> None:
    """More than `before` are written, wherever the rest is.

    The database may have a hot journal after a kill, which no reader can roll back.
    """
    wait_for(lambda: stack.stats(name).get("delivered", 0) > before)


def delivered(stack: Stack, name: str, count: int) -> None:
    wait_for(lambda: stack.stats(name).get("delivered") == count, deadline_s=30.0)


def test_a_kill_before_telegram_knows_repeats_nothing(stack: Stack, api: BotApi) -> None:
    """The messages are packets, and the poll that would tell so never comes to an answer."""
    api.say(*(text_message(f"m{n}") for n in range(20)))
    path = f"/bot{TOKEN}/getUpdates"
    first = api.answer_now()
    api.receiver.script(path, first, Reply(delay_s=60.0, drops="before"))
    stack.write("rows.pipo", rows("rows"))
    stack.start()
    delivered(stack, "rows", 20)
    wait_for(lambda: len(api.polls) == 2)
    assert len(api.kept) == 20
    kill(stack, "rows")
    api.answer_polls()
    api.say(text_message("after"))
    delivered(stack, "rows", 21)
    assert texts(stack, "rows") == [*(f"m{n}" for n in range(20)), "after"]
    wait_for(lambda: not api.kept)
    assert api.polls[2].json["offset"] == 1020


def test_kills_at_any_moment_lose_and_repeat_nothing(stack: Stack, api: BotApi) -> None:
    stack.write("rows.pipo", rows("rows"))
    stack.start()
    said = 0
    for _ in range(3):
        for _ in range(40):
            api.say(text_message(f"m{said}"), {**text_message("x"), "chat": {"id": 1}})
            said += 1
        some_of(stack, "rows", said - 40)
        kill(stack, "rows")
    delivered(stack, "rows", said)
    assert texts(stack, "rows") == [f"m{n}" for n in range(said)]
    wait_for(lambda: not api.kept)


def test_a_kill_between_two_messages_of_an_answer_takes_each_once(
    stack: Stack, api: BotApi
) -> None:
    """The first is a packet, the file of the second is being fetched."""
    api.files["f0"] = ("photos/0.jpg", b"\xff\xd8dog")
    api.files["f1"] = ("photos/p.jpg", b"\xff\xd8cat")
    fetch = f"/file/bot{TOKEN}/photos/p.jpg"
    api.receiver.script(fetch, Reply(delay_s=60.0, drops="before"), Reply(200, b"\xff\xd8cat"))
    api.say({**text_message(""), "photo": photo(0)}, {**text_message(""), "photo": photo(1)})
    stack.write("echo.pipo", ECHO)
    stack.start()
    wait_for(lambda: api.receiver.at(fetch))
    delivered(stack, "echo", 1)
    kill(stack, "echo")
    delivered(stack, "echo", 2)
    second, _first = stack.get("/api/pipelines/echo/packets")["packets"]
    packet = stack.get(f"/api/pipelines/echo/packets/{second['packet_id']}")
    path = Path(packet["steps"][0]["data"]["file"]["path"])
    assert path == stack.home / "pipelines/echo/files/u1-photo.jpg"
    assert path.read_bytes() == b"\xff\xd8cat"
    # What the input fetched may be sent, though it lies outside the pipeline's folder.
    dog, cat = api.receiver.at(f"/bot{TOKEN}/sendPhoto")
    assert b"\xff\xd8dog" in dog.body
    assert b"\xff\xd8cat" in cat.body
    assert b"got it" in cat.body


def test_a_paused_pipeline_takes_messages_until_its_buffer_is_full(
    stack: Stack, api: BotApi
) -> None:
    stack.write("rows.pipo", rows("rows", buffer=2))
    stack.start()
    assert stack.pipo("pause", "rows").returncode == 0
    ids = api.say(*(text_message(f"m{n}") for n in range(5)))
    wait_for(lambda: stack.stats("rows").get("pending") == 2)
    log = stack.home / "logs/rows.log"
    wait_for(lambda: "messages wait" in log.read_text())
    assert api.kept == ids
    assert texts(stack, "rows") == []
    assert stack.pipo("resume", "rows").returncode == 0
    delivered(stack, "rows", 5)
    assert texts(stack, "rows") == [f"m{n}" for n in range(5)]


def test_a_stop_leaves_to_telegram_what_was_not_taken(stack: Stack, api: BotApi) -> None:
    stack.write("rows.pipo", rows("rows"))
    stack.start()
    api.say(text_message("one"), text_message("bad"), text_message("psst", chat=1, user=1))
    delivered(stack, "rows", 1)
    wait_for(lambda: not api.kept)
    ended = len(api.polls)
    assert stack.stop() == 0
    ids = api.say(text_message("two"))
    log = (stack.home / "logs/rows.log").read_text()
    assert "message rejected" in log
    assert "message ignored" in log
    assert len(api.polls) <= ended + 1
    assert api.kept == ids
    state = query(journal_of(stack.home, "rows"), "SELECT input, key, value FROM input_state")
    assert [(row[0], row[1], row[2].split("@")[0]) for row in state] == [
        ("input", "offset:123456", "1003")
    ]
    stack.start()
    delivered(stack, "rows", 2)
    assert texts(stack, "rows") == ["one", "two"]
    assert json.loads(api.polls[-2].body)["offset"] == 1003


def test_a_bot_has_one_reader(stack: Stack, api: BotApi) -> None:
    stack.write("first.pipo", rows("first"))
    stack.start()
    entry = json.loads((stack.home / "run/first.json").read_text())
    assert entry["telegram_bot"] == "123456"
    (stack.workspace / "more").mkdir()
    second = stack.workspace / "more/second.pipo"
    second.write_text(rows("second"))
    refused = stack.pipo("start", str(second))
    told = refused.stdout + refused.stderr
    assert refused.returncode == 1
    assert f"Telegram bot 123456 is read by pipeline 'first' (pid {entry['pid']} on" in told
    assert not (stack.home / "run/second.json").exists()
    assert stack.pipo("stop", "first").returncode == 0
    wait_for(lambda: not (stack.home / "run/first.json").exists() and not api.is_polled)
    started = stack.pipo("start", str(second))
    assert started.returncode == 0, started.stderr
    api.say(text_message("to the second"))
    delivered(stack, "second", 1)
    assert api.most_polls == 1
    assert_no_token(stack, told)


def assert_no_token(stack: Stack, told: str) -> None:
    """The token stands in bots.json and nowhere else of the home."""
    assert "s3cr3t" not in told + stack.output()
    for path in stack.home.rglob("*"):
        if path.is_file() and path.name != "bots.json":
            assert b"s3cr3t" not in path.read_bytes(), path


def test_a_token_that_telegram_refuses_is_told_and_names_itself_nowhere(
    stack: Stack, api: BotApi
) -> None:
    api.answer_polls(*[Reply(401, '{"ok":false,"description":"Unauthorized"}')] * 2)
    api.say(text_message("hello"))
    stack.write("rows.pipo", rows("rows"))
    stack.start()
    delivered(stack, "rows", 1)
    log = (stack.home / "logs/rows.log").read_text()
    assert log.count("getUpdates was answered 401: Unauthorized") == 1
    assert "check the bot's token" in log
    assert "updates come again" in log
    assert_no_token(stack, log)


def test_a_start_without_a_bot_is_refused(stack: Stack) -> None:
    path = stack.write("rows.pipo", rows("rows"))
    done = stack.pipo("run", "--listen", str(stack.port), str(path))
    assert done.returncode == 1
    assert "no bot is set up for the input 'input'" in done.stderr
    assert f"add one to {stack.home}/bots.json" in done.stderr
