"""The telegram input against a stub of the Bot API (telegram-exec-agents §1)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors.contract import Arrival, BotReader, InputSpec
from pipo.connectors.telegram import fetching
from pipo.connectors.telegram import input as telegram
from pipo.connectors.telegram.input import TelegramInputs
from pipo.errors import BadRequest, Conflict, InvalidState, Unavailable
from pipo.home import Home, bots
from pipo.home.leases import Lease
from tests.bot_api import BotApi, failed, text_message
from tests.contract.connectors.intake import FakeIntake, input_context
from tests.receiver import Reply

TOKEN = "123:s3cr3t-Bot"


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi(TOKEN) as made:
        yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telegram, "PAUSE_S", 0.01)
    monkeypatch.setattr(telegram, "PAUSE_S_MAX", 0.05)
    monkeypatch.setattr(telegram, "BUFFER_PAUSE_S", 0.01)
    monkeypatch.setattr(fetching, "_FIRST_PAUSE_S", 0.01)


class Room:
    """A home with one bot, and an intake that outlives the inputs."""

    def __init__(self, folder: Path, api: BotApi, **bot: Any) -> None:
        self.api = api
        self.home = Home(folder)
        self.home.ensure()
        self.intake = FakeIntake()
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.answer_s = 30.0
        self.hidden: set[str] = set()
        entry = {"token": TOKEN, "api": api.url, "allow": [7], **bot}
        self.set_up({"default": "main", "bots": {"main": entry}})

    def set_up(self, telegram: Any) -> None:
        self.home.bots_file.write_text(json.dumps({"telegram": telegram}))

    def made(self, *specs: InputSpec, name: str = "p", **settings: Any) -> TelegramInputs:
        self.home.pipeline(name).ensure()
        context = input_context(
            self.intake, log=self._log, home=self.home, mask=self._mask, hide=self.hidden.add
        )
        given = specs or (InputSpec("bot", settings, "json"),)
        return TelegramInputs(given, context, answer_s=self.answer_s)

    @asynccontextmanager
    async def reading(self, **settings: Any) -> AsyncIterator[TelegramInputs]:
        made = self.made(**settings)
        await made.open()
        try:
            yield made
        finally:
            await made.close()

    async def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, (self.intake.data, self.logged, self.api.offsets)
            await asyncio.sleep(0.005)

    async def texts(self, *wanted: str) -> None:
        """Waits until these messages, and no others, are packets."""
        await self.until(lambda: len(self.intake.data) >= len(wanted))
        assert [data["text"] for data in self.intake.data] == list(wanted)

    def actions(self) -> list[str]:
        return [keys["action"] for _, _, keys in self.logged]

    def said(self, action: str) -> list[dict[str, Any]]:
        return [keys for _, _, keys in self.logged if keys["action"] == action]

    def _log(self, level: str, message: str, **keys: Any) -> None:
        assert "s3cr3t" not in f"{message} {keys}"
        self.logged.append((level, message, keys))

    def _mask(self, text: str) -> str:
        for value in self.hidden:
            text = text.replace(value, "***")
        return text


@pytest.fixture
def room(tmp_path: Path, api: BotApi) -> Room:
    return Room(tmp_path, api)


async def test_a_message_is_a_packet(room: Room, api: BotApi) -> None:
    api.say(text_message("hello"))
    async with room.reading():
        await room.texts("hello")
        await room.until(lambda: not api.kept)
    (arrival,) = room.intake.arrivals
    assert arrival == Arrival(
        "bot",
        {
            "message_id": 40,
            "date": "2026-11-30T00:53:20.000Z",
            "chat_id": 7,
            "chat_type": "private",
            "from": {"id": 5, "username": "ada", "name": "Ada"},
            "text": "hello",
            "file": None,
        },
        "telegram",
        "7",
        arrival.state,
    )
    assert str(arrival.state["offset:123"]).startswith("1001@")
    asked = api.polls[0].json
    assert asked == {"timeout": 25, "limit": 100, "allowed_updates": ["message"]}
    assert api.offsets[:2] == [None, 1001]
    assert room.hidden == {TOKEN}
    assert api.most_polls == 1


async def test_a_restart_asks_for_what_came_after(room: Room, api: BotApi) -> None:
    """A stop between a packet and the next poll: Telegram still keeps what was handled."""
    api.say(text_message("one"))
    made = room.made()
    room.intake.hold = asyncio.Event()
    await made.open()
    await room.intake.reached.wait()
    closing = asyncio.create_task(made.close(), name="closing")
    await asyncio.sleep(0)
    assert not closing.done()
    room.intake.hold.set()
    await closing
    assert api.kept == [1000]
    api.say(text_message("two"))
    async with room.reading():
        await room.texts("one", "two")
    assert api.offsets[:2] == [None, 1001]


async def test_what_is_no_message_of_the_allowed_moves_the_offset(room: Room, api: BotApi) -> None:
    other = text_message("psst", chat=8, user=9)
    api.update({"message": other}, {"edited_message": text_message("x")}, {"message": {"no": 1}})
    async with room.reading():
        await room.until(lambda: not api.kept)
        await room.until(lambda: room.intake.remembered == 1)
    assert room.intake.arrivals == []
    assert room.intake.states["bot"]["offset:123"].startswith("1003@")
    (keys,) = room.said("message_ignored")
    assert (keys["username"], keys["user"], keys["chat"]) == ("ada", 9, 8)
    async with room.reading():
        await room.until(lambda: api.offsets[-1] == 1003)


async def test_what_was_ignored_is_not_heard_after_a_restart(room: Room, api: BotApi) -> None:
    """Not even when the list has changed meanwhile."""
    api.say(text_message("for nobody", chat=8, user=9), text_message("yes"))
    made = room.made()
    room.intake.hold = asyncio.Event()
    await made.open()
    await room.intake.reached.wait()
    closing = asyncio.create_task(made.close(), name="closing")
    room.intake.hold.set()
    await closing
    assert api.kept == [1000, 1001]
    async with room.reading(allow=[8]):
        await room.until(lambda: not api.kept)
    await room.texts("yes")


@pytest.mark.parametrize(
    ("bot", "settings", "heard"),
    [
        ({}, {}, ["chat", "both"]),
        ({"allow": [5]}, {}, ["user", "both"]),
        ({"allow": [5]}, {"allow": [7]}, ["chat", "both"]),
        ({"allow": [5]}, {"allow": []}, []),
        ({"allow": None}, {}, []),
        ({"allow": None}, {"allow": [5, 7]}, ["chat", "user", "both"]),
    ],
)
async def test_who_is_heard(
    tmp_path: Path, api: BotApi, bot: Any, settings: Any, heard: list[str]
) -> None:
    room = Room(tmp_path, api, **bot)
    api.say(
        text_message("chat", chat=7, user=1),
        text_message("user", chat=1, user=5),
        text_message("neither", chat=1, user=1),
        text_message("both", chat=7, user=5),
    )
    async with room.reading(**settings):
        await room.until(lambda: not api.kept)
    await room.texts(*heard)
    assert len(room.said("message_ignored")) == 4 - len(heard)
    assert ("nobody_allowed" in room.actions()) == (not heard)


async def test_a_full_buffer_is_waited_for(room: Room, api: BotApi) -> None:
    full = True
    room.intake.judge = lambda arrival: "refuse" if full else "accept"
    api.say(text_message("one"), text_message("two"))
    async with room.reading():
        await room.until(lambda: room.said("messages_wait"))
        assert room.intake.arrivals == []
        assert api.kept == [1000, 1001]
        full = False
        await room.texts("one", "two")
        await room.until(lambda: not api.kept)
    assert len(room.said("messages_wait")) == 1
    assert "buffer full" in room.said("messages_wait")[0]["reason"]


async def test_a_stop_while_the_buffer_is_full_loses_nothing(room: Room, api: BotApi) -> None:
    room.intake.judge = lambda arrival: "refuse"
    api.say(text_message("one"))
    async with room.reading():
        await room.until(lambda: room.said("messages_wait"))
    assert "bot" not in room.intake.states
    room.intake.judge = lambda arrival: "accept"
    async with room.reading():
        await room.texts("one")


async def test_a_rejected_message_is_over(room: Room, api: BotApi) -> None:
    words = iter(["reject", "accept"])
    room.intake.judge = lambda arrival: next(words)
    api.say(text_message("bad"), text_message("good"))
    async with room.reading():
        await room.until(lambda: not api.kept)
    (keys,) = room.said("message_rejected")
    assert keys["reason"] == "too young"
    assert str(room.intake.arrivals[0].state["offset:123"]).startswith("1001@")


async def test_a_journal_that_takes_nothing_is_tried_again(room: Room, api: BotApi) -> None:
    room.intake.failure = Unavailable("the journal is behind")
    api.say(text_message("one"))
    async with room.reading():
        await room.until(lambda: room.said("messages_wait"))
        room.intake.failure = None
        await room.texts("one")


async def test_a_stop_ends_the_poll_at_once(room: Room, api: BotApi) -> None:
    # So a poll takes fifty seconds.
    api.second_s = 1.0
    made = room.made()
    await made.open()
    await room.until(lambda: api.is_polled)
    await made.close()
    # The poll that was waiting goes on at the other end.
    assert api.is_polled
    await made.close()


@pytest.mark.parametrize(
    ("reply", "level", "told"),
    [
        (failed(401, "Unauthorized"), "error", "getUpdates was answered 401: Unauthorized"),
        (failed(409, "Conflict: terminated"), "error", "answered 409: Conflict: terminated"),
        (failed(502, f"Bad Gateway {TOKEN}"), "warn", "answered 502: Bad Gateway ***"),
        (Reply(502, "<html>"), "warn", "answered 502: <html>"),
        (Reply(200, '{"ok":true,"result":{}}'), "warn", "it brings no list of updates"),
        (Reply(200, "no json"), "warn", "answered 200: no json"),
        (Reply(drops="before"), "warn", "was closed without an answer"),
        (Reply(drops="body"), "warn", "the answer broke off"),
        (Reply(delay_s=60.0), "warn", "no answer within 2 s"),
    ],
)
async def test_a_poll_that_fails_is_told_once_and_tried_again(
    room: Room, api: BotApi, reply: Reply, level: str, told: str
) -> None:
    api.answer_polls(reply, reply)
    if reply.delay_s:
        room.answer_s = 1.0
    api.say(text_message("still here"))
    async with room.reading(poll_every="1s"):
        await room.texts("still here")
    (keys,) = room.said("poll_failed")
    assert told in keys["reason"]
    assert [found for found, *_, keys in room.logged if keys["action"] == "poll_failed"] == [level]
    assert room.actions().count("poll_recovered") == 1
    assert ("another program" in keys["hint"]) == ("409" in told)


async def test_a_pause_that_telegram_asks_for_is_kept(room: Room, api: BotApi) -> None:
    api.answer_polls(failed(429, "Too Many Requests", retry_after=0.3))
    api.say(text_message("later"))
    async with room.reading():
        await room.texts("later")
    first, second, *_ = api.polls
    assert second.at - first.at >= 0.3


async def test_the_pauses_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still(SystemClock):
        def jitter(self, span_s: float) -> float:
            return span_s

    backoff = telegram._Backoff(Still(), 1.0, 60.0)
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    backoff.failures = 0
    assert backoff.next_s(30.0) == 30.0
    assert backoff.next_s(1e9) == telegram.ASKED_PAUSE_S_MAX


async def test_a_server_that_does_not_wait_is_not_asked_without_a_pause(
    tmp_path: Path, room: Room, api: BotApi
) -> None:
    api.answer_polls(*[Reply(200, '{"ok":true,"result":[]}')] * 50)
    async with room.reading():
        await room.until(lambda: len(api.polls) >= 2)
    first, second, *_ = api.polls
    assert second.at - first.at >= 0.9


@pytest.mark.parametrize(
    ("bot", "settings", "timeout"),
    [
        ({}, {}, 25),
        ({"poll_every": "3s"}, {}, 3),
        ({"poll_every": "3s"}, {"poll_every": "1500ms"}, 1),
        ({}, {"poll_every": "1h"}, 50),
    ],
)
async def test_how_long_a_poll_waits(
    tmp_path: Path, api: BotApi, bot: Any, settings: Any, timeout: int
) -> None:
    room = Room(tmp_path, api, **bot)
    async with room.reading(**settings):
        await room.until(lambda: api.polls)
    assert api.polls[0].json["timeout"] == timeout


async def test_updates_numbered_anew_after_a_week_are_new(room: Room, api: BotApi) -> None:
    now = SystemClock().now_ms()
    week = 7 * 24 * 3_600_000
    room.intake.states["bot"] = {"offset:123": f"900000@{now - week}"}
    api.say(text_message("after a week"))
    async with room.reading():
        await room.texts("after a week")
        await room.until(lambda: not api.kept)
    assert api.offsets[:2] == [None, 1001]


async def test_what_comes_twice_is_taken_once(room: Room, api: BotApi) -> None:
    """From a server that does not keep to the offset."""
    one = {"update_id": 5, "message": text_message("once")}
    again = Reply(200, json.dumps({"ok": True, "result": [one, one]}))
    api.answer_polls(again, again)
    async with room.reading():
        await room.until(lambda: len(api.polls) >= 2)
        await room.texts("once")
    assert len(room.intake.arrivals) == 1


async def test_another_bot_starts_anew(room: Room, api: BotApi) -> None:
    room.intake.states["bot"] = {"offset:999": f"7777@{SystemClock().now_ms()}"}
    async with room.reading():
        await room.until(lambda: api.offsets)
    assert api.offsets[0] is None


# ── who reads a bot ──────────────────────────────────────────────────────────


async def test_a_bot_has_one_reader(room: Room, api: BotApi) -> None:
    first, second = room.made(), room.made()
    await first.open()
    assert isinstance(first, BotReader)
    assert first.bots == ["123"]
    lease = Lease.acquire(room.home.pipeline("p").lease, clock=SystemClock())
    try:
        with pytest.raises(
            Conflict, match=r"bot 123 is read by pipeline 'p' \(pid \d+ on "
        ) as told:
            await second.open()
        assert "s3cr3t" not in f"{told.value.message} {told.value.hint}"
        await first.close()
        await second.open()
        await second.close()
    finally:
        lease.release()


def test_a_reader_that_cannot_be_named_is_told_as_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.ensure()
    lease = bots.claim(home, "5", clock=SystemClock())
    with pytest.raises(Conflict, match="bot 5 is read by another pipeline"):
        bots.claim(home, "5", clock=SystemClock())
    lease.release()
    bots.claim(home, "5", clock=SystemClock()).release()


async def test_two_inputs_on_one_bot_are_refused(room: Room) -> None:
    made = room.made(InputSpec("a", {}, "json"), InputSpec("b", {"token": TOKEN}, "json"))
    with pytest.raises(InvalidState, match="the inputs 'a' and 'b' read one Telegram bot"):
        await made.open()
    await made.close()
    async with room.reading():
        pass


async def test_two_bots_are_read_side_by_side(room: Room, api: BotApi) -> None:
    with BotApi("456:s3cr3t-Other") as other:
        entry = {"token": "456:s3cr3t-Other", "api": other.url, "allow": [7]}
        main = {"token": TOKEN, "api": api.url, "allow": [7]}
        room.set_up({"default": "main", "bots": {"main": main, "other": entry}})
        made = room.made(InputSpec("a", {}, "json"), InputSpec("b", {"bot": "other"}, "json"))
        await made.open()
        assert made.bots == ["123", "456"]
        api.say(text_message("to main"))
        other.say(text_message("to other"))
        await room.until(lambda: len(room.intake.arrivals) == 2)
        await made.close()
    found = {arrival.input: arrival.data["text"] for arrival in room.intake.arrivals}
    assert found == {"a": "to main", "b": "to other"}


@pytest.mark.parametrize(
    ("telegram", "settings", "error", "told"),
    [
        ({}, {}, InvalidState, "no bot is set up for the input 'bot'"),
        ({}, {"bot": "none"}, InvalidState, "no bot 'none' is set up"),
        ({}, {"token": "s3cr3t"}, BadRequest, "the bot's token is none"),
        ({}, {"token": "s3cr3t/../x"}, BadRequest, "the bot's token is none"),
        ({}, {"token": "1:x", "poll_every": "900ms"}, BadRequest, "`poll_every: 900ms`"),
        ({"bots": {"a": {"token": ""}}}, {}, BadRequest, "token is empty"),
        ({"default": "a", "bots": {"a": {"token": "env:NONE_SUCH"}}}, {}, BadRequest, "NONE_SUCH"),
    ],
)
async def test_a_start_without_a_usable_bot_is_refused(
    room: Room, telegram: Any, settings: Any, error: type[Exception], told: str
) -> None:
    room.set_up(telegram)
    made = room.made(**settings)
    with pytest.raises(error, match=told) as caught:
        await made.open()
    assert "s3cr3t" not in str(caught.value)
    await made.close()


# ── files ────────────────────────────────────────────────────────────────────

DOCUMENT = {
    "file_id": "f1",
    "file_unique_id": "u1",
    "file_name": "plan.pdf",
    "mime_type": "application/pdf",
    "file_size": 4,
}


def fetched(room: Room) -> bytes:
    """The file of the first packet."""
    return Path(room.intake.data[0]["file"]["path"]).read_bytes()


async def test_a_file_is_fetched_before_its_message_is_a_packet(room: Room, api: BotApi) -> None:
    api.files["f1"] = ("documents/file 1.pdf", b"plan")
    api.say(text_message("", caption="the plan", document=DOCUMENT))
    async with room.reading():
        await room.texts("the plan")
    path = room.home.pipeline("p").files / "u1-plan.pdf"
    assert room.intake.data[0]["file"] == {
        "kind": "document",
        "file_id": "f1",
        "name": "plan.pdf",
        "mime_type": "application/pdf",
        "size": 4,
        "path": str(path),
    }
    assert path.read_bytes() == b"plan"
    assert [found.name for found in path.parent.iterdir()] == ["u1-plan.pdf"]


async def test_without_download_nothing_is_asked_for(room: Room, api: BotApi) -> None:
    api.say(text_message("x", document=DOCUMENT))
    async with room.reading(download=False):
        await room.texts("x")
    assert room.intake.data[0]["file"]["path"] is None
    assert api.sent("getFile") == []
    assert room.said("file_not_fetched") == []


@pytest.mark.parametrize(
    ("size", "content", "told", "asked"),
    [
        (21 << 20, b"", "more than the 20 MB", 0),
        (None, None, "answered 400: Bad Request: file is too big", 1),
        (None, b"x" * ((20 << 20) + 1), "more than the 20 MB", 1),
        (20 << 20, b"x" * (20 << 20), "", 1),
    ],
)
async def test_files_up_to_20_mb_are_fetched(
    room: Room, api: BotApi, size: int | None, content: bytes | None, told: str, asked: int
) -> None:
    if content is not None:
        api.files["f1"] = ("documents/f", content)
    api.say(text_message("big", document={**DOCUMENT, "file_size": size}))
    async with room.reading():
        await room.texts("big")
    path = room.intake.data[0]["file"]["path"]
    assert (path is None) == bool(told)
    assert [told in keys["reason"] for keys in room.said("file_not_fetched")] == [True] * bool(told)
    assert len(api.sent("getFile")) == asked
    if path:
        assert len(fetched(room)) == 20 << 20


async def test_a_fetch_that_fails_for_a_moment_is_repeated(room: Room, api: BotApi) -> None:
    api.files["f1"] = ("documents/f", b"plan")
    api.receiver.script(
        f"/bot{TOKEN}/getFile",
        Reply(502, "bad"),
        failed(429, "slow", retry_after=0.1),
        Reply(drops="before"),
        Reply(200, '{"ok":true,"result":{"file_path":"documents/f"}}'),
    )
    api.say(text_message("x", document=DOCUMENT))
    async with room.reading():
        await room.texts("x")
    assert fetched(room) == b"plan"
    assert room.said("file_not_fetched") == []


async def test_a_fetch_that_goes_on_failing_costs_the_file_and_no_message(
    room: Room, api: BotApi
) -> None:
    api.receiver.script(f"/bot{TOKEN}/getFile", Reply(502, f"bad {TOKEN}"))
    api.say(text_message("x", document=DOCUMENT), text_message("next"))
    async with room.reading():
        await room.texts("x", "next")
    assert room.intake.data[0]["file"]["path"] is None
    (keys,) = room.said("file_not_fetched")
    assert "answered 502: bad ***" in keys["reason"]
    assert len(api.sent("getFile")) == fetching.TRIES


@pytest.mark.parametrize("where", ["", "/var/lib/bot/f", "../sendMessage", 5, None])
async def test_a_path_that_is_none_of_the_apis_is_not_followed(
    room: Room, api: BotApi, where: Any
) -> None:
    told = Reply(200, json.dumps({"ok": True, "result": {"file_path": where}}))
    api.receiver.script(f"/bot{TOKEN}/getFile", told)
    api.say(text_message("x", document=DOCUMENT))
    async with room.reading():
        await room.texts("x")
    (keys,) = room.said("file_not_fetched")
    assert keys["reason"] == "getFile names no path that can be fetched"
    assert api.sent() == []


async def test_a_stop_ends_a_fetch_and_its_message_comes_again(room: Room, api: BotApi) -> None:
    api.files["f1"] = ("documents/f", b"plan")
    path = f"/file/bot{TOKEN}/documents/f"
    api.receiver.script(path, Reply(delay_s=60.0), Reply(200, b"plan"))
    api.say(text_message("x", document=DOCUMENT))
    made = room.made()
    await made.open()
    await room.until(lambda: api.receiver.at(path))
    began = time.monotonic()
    await made.close()
    assert time.monotonic() - began < 30.0
    assert room.intake.arrivals == []
    spare = room.home.pipeline("p").files / ".u1-plan.pdf.1.ab.tmp"
    spare.write_bytes(b"half")
    async with room.reading():
        await room.texts("x")
    assert not spare.exists()
    assert fetched(room) == b"plan"


async def test_a_bug_in_a_turn_is_told_and_ends_nothing(room: Room, api: BotApi) -> None:
    room.intake.failure = ZeroDivisionError("a bug")
    api.say(text_message("one"))
    async with room.reading():
        await room.until(lambda: room.said("turn_failed"))
        room.intake.failure = None
        await room.texts("one")
