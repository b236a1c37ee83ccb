"""What is sent to the Bot API, and what it answers. Pure.

Source: core.telegram.org/bots/api: sendMessage, sendPhoto, sendDocument, ResponseParameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipo import payload
from pipo.connectors.contract import Refused, RetryAfter, WriteFailed, WriteUnit
from pipo.connectors.file.records import text
from pipo.connectors.http.failures import excerpt
from pipo.connectors.http.sending import Answer
from pipo.connectors.http.statuses import pause_asked_s

TEXT_UNITS, CAPTION_UNITS = 4096, 1024
_FILE_KINDS = {"photo": "sendPhoto", "document": "sendDocument"}
_WRONG_BOT = frozenset({401, 404})


@dataclass(frozen=True, slots=True)
class Message:
    """A call of the Bot API. `upload` is the field of a local file and its path."""

    method: str
    fields: Mapping[str, Any]
    upload: tuple[str, str] | None = None


def message(unit: WriteUnit) -> Message:
    """What a unit's settings say.

    Raises: Refused, for a message that no chat could get.
    """
    settings = unit.settings
    files = [kind for kind in _FILE_KINDS if settings.get(kind)]
    if len(files) > 1:
        raise Refused("a message has a photo or a document, not both", hint="leave one of them out")
    words = text(settings.get("text", unit.data)).decode()
    fields: dict[str, Any] = {"chat_id": _chat(unit)}
    if settings.get("parse_mode"):
        fields["parse_mode"] = settings["parse_mode"]
    if not files:
        return Message("sendMessage", {**fields, "text": cut(words, TEXT_UNITS)})
    (kind,) = files
    fields["caption"] = cut(words, CAPTION_UNITS)
    where = str(settings[kind])
    if where.startswith(("http://", "https://")):
        return Message(_FILE_KINDS[kind], {**fields, kind: where})
    return Message(_FILE_KINDS[kind], fields, (kind, where))


def cut(words: str, units: int) -> str:
    """The start of a text, at most `units` as Telegram counts them: UTF-16 units."""
    if len(words) <= units // 2:
        return words
    return words.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")


def outcome(
    sent: Message, answer: Answer, *, mask: Callable[[str], str], now_ms: int
) -> Mapping[str, Any] | WriteFailed | RetryAfter:
    """The result of a call, or why there is none."""
    try:
        told = payload.decode(answer.body)
    except payload.BadPayload:
        told = None
    if not isinstance(told, dict):
        return WriteFailed(f"{sent.method} was answered {answer.status}: {excerpt(answer, mask)}")
    result = told.get("result")
    if told.get("ok") is True and isinstance(result, dict) and "message_id" in result:
        chat = result.get("chat")
        there = chat.get("id") if isinstance(chat, dict) else None
        given = sent.fields["chat_id"]
        return {"chat_id": given if there is None else there, "message_id": result["message_id"]}
    return _failure(sent, answer, told, mask, now_ms)


def _failure(
    sent: Message, answer: Answer, told: dict[str, Any], mask: Callable[[str], str], now_ms: int
) -> WriteFailed | RetryAfter:
    why = mask(str(told.get("description") or "no reason given"))
    status = answer.status
    message = f"{sent.method} was answered {status}: {why[:200]}"
    pause_s = _pause_s(told) or pause_asked_s(status, answer.headers, now_ms)
    if status == 429 and pause_s is not None:
        return RetryAfter(message, seconds=pause_s, hint=f"it asks for a pause of {pause_s:g} s")
    return WriteFailed(message, hint="check the bot's token" if status in _WRONG_BOT else "")


def _pause_s(told: dict[str, Any]) -> float | None:
    parameters = told.get("parameters")
    asked = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or asked < 0:
        return None
    return float(min(asked, 1e9))


def _chat(unit: WriteUnit) -> int | str:
    chat = unit.settings.get("chat_id")
    if chat is None and unit.trigger == "telegram":
        return unit.source
    if isinstance(chat, bool) or not isinstance(chat, (int, str)) or chat == "":
        raise Refused(
            "the message has no chat to go to"
            if chat in (None, "")
            else f"`chat_id` renders to {str(chat)[:60]!r}, which is no chat",
            hint="set `chat_id`; only packets of a telegram input bring their own",
        )
    return chat
