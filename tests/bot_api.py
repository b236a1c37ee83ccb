"""A stub of the Bot API for tests: it keeps updates until a poll asks for a later one."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from tests.receiver import Got, Receiver, Reply


def text_message(text: str, *, chat: int = 7, user: int = 5, **more: Any) -> dict[str, Any]:
    """A message as Telegram sends it."""
    return {
        "message_id": 40,
        "date": 1_796_000_000,
        "chat": {"id": chat, "type": "private", "first_name": "Ada"},
        "from": {"id": user, "is_bot": False, "username": "ada", "first_name": "Ada"},
        "text": text,
        **more,
    }


class BotApi:
    """A context manager; `url` is its address. Safe to ask and to feed while it is polled.

    A poll with nothing new waits for its `timeout`, in seconds of `second_s` each.
    """

    def __init__(self, token: str, *, first_id: int = 1000, second_s: float = 0.05) -> None:
        self.receiver = Receiver()
        self.url = self.receiver.url
        self.offsets: list[int | None] = []
        """What each poll asked for."""
        self.most_polls = 0
        self.files: dict[str, tuple[str, bytes]] = {}
        """file_id → its path and content."""
        self._token = token
        self._next_id = first_id
        self.second_s = second_s
        self._kept: list[dict[str, Any]] = []
        self._polls = 0
        self._news = threading.Condition()
        self.answer_polls()
        self.receiver.script(f"/bot{token}/getFile", self._named)
        self.receiver.fallback = self._otherwise

    def __enter__(self) -> Self:
        self.receiver.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.receiver.__exit__(kind, error, trace)

    # ── what Telegram does ───────────────────────────────────────────────────

    def say(self, *messages: Mapping[str, Any]) -> list[int]:
        """Messages come to the bot; the ids of their updates."""
        return self.update(*({"message": message} for message in messages))

    def update(self, *kinds: Mapping[str, Any]) -> list[int]:
        """Updates of any kind."""
        with self._news:
            ids = list(range(self._next_id, self._next_id + len(kinds)))
            self._next_id += len(kinds)
            self._kept += [{"update_id": n, **kind} for n, kind in zip(ids, kinds, strict=True)]
            self._news.notify_all()
        return ids

    @property
    def kept(self) -> list[int]:
        """The ids of what no poll has acknowledged yet."""
        with self._news:
            return [one["update_id"] for one in self._kept]

    @property
    def polls(self) -> list[Got]:
        return self.receiver.at(f"/bot{self._token}/getUpdates")

    def answer_polls(self, *first: Reply) -> None:
        """Polls are answered so, then as Telegram does."""
        self.receiver.script(f"/bot{self._token}/getUpdates", *first, self._polled)

    def sent(self, method: str = "sendMessage") -> list[Any]:
        """The bodies of what was sent."""
        return [got.json for got in self.receiver.at(f"/bot{self._token}/{method}")]

    def answer_now(self) -> Reply:
        """What Telegram answers to a poll for everything, and forgets nothing."""
        with self._news:
            return ok(list(self._kept))

    @property
    def is_polled(self) -> bool:
        """Whether a poll waits; one whose client has left waits out its time."""
        with self._news:
            return self._polls > 0

    # ── replies ──────────────────────────────────────────────────────────────

    def _polled(self, got: Got) -> Reply:
        asked = got.json
        offset = asked.get("offset")
        with self._news:
            self.offsets.append(offset)
            self._polls += 1
            self.most_polls = max(self.most_polls, self._polls)
            self._kept = [one for one in self._kept if offset is None or one["update_id"] >= offset]
            self._news.wait_for(lambda: self._kept, asked["timeout"] * self.second_s)
            self._polls -= 1
            return ok(self._kept[: asked["limit"]])

    def _named(self, got: Got) -> Reply:
        found = self.files.get(got.json["file_id"])
        return ok({"file_path": found[0]}) if found else failed(400, "Bad Request: file is too big")

    def _otherwise(self, got: Got) -> Reply:
        content = {f"/file/bot{self._token}/{path}": body for path, body in self.files.values()}
        if (path := unquote(got.path)) in content:
            return Reply(200, content[path])
        if got.path.startswith(f"/bot{self._token}/send"):
            return ok({"message_id": 77})
        return failed(401, "Unauthorized")


def ok(result: Any) -> Reply:
    return Reply(200, json.dumps({"ok": True, "result": result}))


def failed(status: int, why: str, **parameters: Any) -> Reply:
    told = {"ok": False, "error_code": status, "description": why, "parameters": parameters}
    return Reply(status, json.dumps(told))
