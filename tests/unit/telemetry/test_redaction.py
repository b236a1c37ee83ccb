"""Masking: plain, encoded, in any alignment (decision 43, R41)."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipo.telemetry.redaction import Redactor

SECRET = 's3cr3t-a/"b\\c%d é'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower().replace("s3cr3t", "s3cr3t"),
        quote_plus(SECRET, safe="/"),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        repr(SECRET),
        repr(SECRET.encode()),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)
def test_every_form_is_masked_and_the_rest_stays(form: str) -> None:
    masked = Redactor([SECRET]).text(f"POST {form} answered 401")
    assert masked.startswith("POST ")
    assert masked.endswith(" answered 401")
    assert "***" in masked
    assert len(masked) < len("POST  answered 401") + 8


@given(st.binary(max_size=7), st.binary(max_size=7))
def test_base64_is_masked_whatever_stands_around_the_value(before: bytes, behind: bytes) -> None:
    coded = base64.b64encode(before + b"s3cr3t-value" + behind).decode()
    assert Redactor(["s3cr3t-value"]).text(f"Basic {coded};") == "Basic ***;"


def test_the_longest_of_two_secrets_wins() -> None:
    assert Redactor(["abc", "abcdef"]).text("x abcdef y abc") == "x *** y ***"


def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIBVgIBADANBg\n-----END KEY-----\n"
    assert "MIIB" not in Redactor([key]).text("read line MIIBVgIBADANBg of it")


def test_a_value_is_learned_later() -> None:
    redactor = Redactor(["first"])
    redactor.add("second/")
    redactor.add("")
    assert redactor.text("first, second%2f, none") == "***, ***, none"


def test_no_secret_changes_nothing() -> None:
    text = "anything"
    assert Redactor().text(text) is text
    assert Redactor([""]).text(text) == text


def test_values_are_masked_in_keys_too() -> None:
    redactor = Redactor(["hush"])
    value = {"a hush b": ["hush", 1, None, {"k": ("hush!",)}]}
    assert redactor.value(value) == {"a *** b": ["***", 1, None, {"k": ["***!"]}]}


def test_packet_data_is_masked_only_where_it_equals_a_secret() -> None:
    assert Redactor(["a"]).data({"name": "ada", "x": "a"}) == {"name": "ada", "x": "***"}


@pytest.mark.parametrize("values", [[], [SECRET]])
def test_half_of_a_surrogate_pair_stands_as_its_escape(values: list[str]) -> None:
    # `data.text[0]` is one, where the text begins with an emoji.
    shown = Redactor(values).text("é \ud83d and 😀 \ude00")
    assert shown == "é \\ud83d and 😀 \\ude00"
    assert shown.encode().decode() == shown
