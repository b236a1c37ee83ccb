"""The text of an error, and the change that ends its unit."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused, WriteFailed
from pipo.journal.changes import PacketError
from pipo.lang.faults import LanguageError
from pipo.lang.templates import compile_template
from pipo.telemetry.redaction import Redactor
from pipo_runner.pipeline.definition.failures import (
    MESSAGE_CHARS_MAX,
    Failure,
    describe,
    packet_error,
    told,
)
from pipo_runner.pipeline.definition.rendering import RenderError

FAILURE = Failure("node.failed", "shape", "no ink", 3, 1500.0, rule="data.n > 1")


def same(text: str) -> str:
    return text


def error_with(template: str | None, scope: Any = None, redact: Any = same) -> PacketError:
    made = None if template is None else compile_template(template)
    return packet_error(FAILURE, made, lambda: scope or {}, redact)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (WriteFailed("no ink"), "no ink"),
        (Refused("no ink", hint="buy some"), "no ink (buy some)"),
        (RenderError("the path 'x' renders to nothing"), "the path 'x' renders to nothing"),
        (LanguageError("runtime", "not a number"), "not a number"),
        (KeyError("x"), "KeyError: 'x'; this is a bug in Pipo, please report it"),
    ],
)
def test_an_errors_text(error: Exception, text: str) -> None:
    assert describe(error) == text


def test_without_a_template_the_message_is_the_errors_own() -> None:
    assert error_with(None) == PacketError("node.failed", "no ink", "data.n > 1", "shape", 3)


def test_a_template_sees_the_error_and_the_scope() -> None:
    template = (
        "${error.node}/${error.code}/${error.rule}/${error.attempts}/${error.elapsed}/${data}"
    )
    assert error_with(template, {"data": 7}).message == "shape/node.failed/data.n > 1/3/1.5s/7"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("${data}", '{"n":true}'),
        ("${data.n}", "true"),
        ("is ${data.n}", "is true"),
        ("${data.nothing}", "no ink"),
        ("${null}", "no ink"),
    ],
)
def test_a_message_is_always_a_text(template: str, text: str) -> None:
    assert error_with(template, {"data": {"n": True}}).message == text


def test_a_broken_template_falls_back_with_a_note() -> None:
    message = error_with("${upper(data)}", {"data": 7}).message
    assert message.startswith("no ink [the message template failed: upper() takes")


def test_a_scope_that_cannot_be_made_falls_back_too() -> None:
    def broken() -> Any:
        raise ValueError("the result is damaged")

    made = packet_error(FAILURE, compile_template("x ${data}"), broken, same)
    assert made.message == "no ink [the message template failed: the result is damaged]"


def test_the_whole_message_is_redacted() -> None:
    made = error_with("${error.message} for ${data}", {"data": "s3cr3t"}, lambda t: t[:6] + "***")
    assert made.message == "no ink***"


def test_a_message_is_cut_behind_the_redaction() -> None:
    """A cut through a secret would leave its front unmasked."""
    data = "x" * (MESSAGE_CHARS_MAX - 3) + "s3cr3t-value" + "y" * 20_000
    masked = error_with("${data}", {"data": data}, Redactor(["s3cr3t-value"]).text).message
    assert len(masked) == MESSAGE_CHARS_MAX
    assert masked.endswith("x**…")
    assert told("as it is", same) == "as it is"


def test_a_message_with_half_an_emoji_can_be_journaled() -> None:
    error = error_with("cut ${data[0]}", {"data": "😀"}, Redactor().text)
    assert error.message == "cut \\ud83d"
    assert '"message":"cut \\\\ud83d"' in error.json()
