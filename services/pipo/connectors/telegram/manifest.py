"""telegram: messages from and to a Telegram bot."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, OutputRole, Role, Schema
from pipo.connectors.schema import (
    BOT_NAME,
    boolean,
    choice,
    closed,
    duration,
    integer,
    list_of,
    literal,
    path_or_url,
    text,
)

_BOT = literal("A bot of this home; its default bot unless set.", pattern=BOT_NAME)
_TOKEN = text("A bot's token, in place of `bot`.")

_SEND: Schema = {
    **closed(
        bot=_BOT,
        token=_TOKEN,
        chat_id={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": "Where it goes; the chat that a telegram packet came from unless set.",
        },
        text=text("The message, cut at 4096 characters (a caption at 1024); `data` unless set."),
        photo=path_or_url("A picture: a path or an http(s) address."),
        document=path_or_url("A file: a path or an http(s) address."),
        parse_mode=choice("How the text is read.", "Markdown", "MarkdownV2", "HTML"),
    ),
    "description": "Sends a message with a Telegram bot.",
}

_INPUT: Schema = {
    **closed(
        bot=_BOT,
        token=_TOKEN,
        allow=list_of(
            integer("A chat or user id."),
            "The chats and users that are heard; the bot's own list unless set.",
        ),
        poll_every=duration("The longest wait of one poll; the bot's own unless set.", least="1s"),
        download=boolean("Whether files of up to 20 MB are fetched.", default=True),
    ),
    "description": "Takes the messages that a Telegram bot gets, each a packet.",
}

MANIFEST = Manifest(
    name="telegram",
    summary="Takes messages from a Telegram bot, and sends them.",
    input=Role(_INPUT),
    tap=Role(_SEND, effect="external"),
    output=OutputRole(_SEND, effect="write", keyed=False),
)
