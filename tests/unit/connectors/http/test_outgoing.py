"""The request that settings ask for (O034, O035, O037, edges 194, 195)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.http.outgoing import own_key, request, shown

URL = "http://127.0.0.1:9/x"


def made(data: Any = None, key: str = "k", **settings: Any) -> Any:
    return request({"url": URL, **settings}, data, key)


def test_a_post_of_the_data_with_the_units_key() -> None:
    asked = made({"n": 1})
    assert (asked.method, str(asked.url), asked.body) == ("POST", URL, b'{"n":1}')
    assert asked.headers == {"Idempotency-Key": "k", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ("grüße", "grüße".encode(), "text/plain; charset=utf-8"),
        ("", b"", "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (10**30, b"1" + b"0" * 30, "application/json"),
        (None, b"null", "application/json"),
    ],
)
def test_a_text_is_plain_and_all_else_json(body: Any, sent: bytes, content_type: str) -> None:
    asked = made("data", body=body)
    assert (asked.body, asked.headers["Content-Type"]) == (sent, content_type)
    assert made(body).body == sent


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_have_no_body(method: str) -> None:
    asked = made({"n": 1}, method=method, body="b")
    assert asked.body is None
    assert asked.headers == {"Idempotency-Key": "k"}


@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_an_own_content_type_stays_the_only_one(name: str) -> None:
    headers = made({}, headers={name: "application/x-own"}).headers
    assert headers == {name: "application/x-own", "Idempotency-Key": "k"}


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_an_own_key_replaces_the_default_and_is_sent_once(name: str) -> None:
    settings = {"url": URL, "headers": {name: " o-1 "}}
    assert own_key(settings) == "o-1"
    assert request(settings, {}, "o-1").headers == {
        "Idempotency-Key": "o-1",
        "Content-Type": "application/json",
    }


@pytest.mark.parametrize("value", ["", " ", None])
def test_an_own_key_that_renders_to_nothing_is_refused(value: Any) -> None:
    """Else packets without the field would all go out under a key that nobody chose."""
    assert own_key({"url": URL, "headers": {"Idempotency-Key": value}}) is None
    with pytest.raises(Refused, match="the header Idempotency-Key renders to nothing"):
        made({}, headers={"Idempotency-Key": value})


def test_header_values_are_texts() -> None:
    headers = made({}, headers={"X-N": 5, "X-B": True, "X-None": None}).headers
    assert headers["X-N"] == "5"
    assert headers["X-B"] == "true"
    assert "X-None" not in headers


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"X": "a\r\nEvil: 1"}, "the header X holds a line break"),
        ({"X": "a\nb"}, "the header X holds a line break"),
        ({"X\r\nEvil": "1"}, "is no name of a header"),
        ({"": "1"}, "is no name of a header"),
        ({"X Y": "1"}, "is no name of a header"),
        ({"X": {"a": 1}}, "the header X renders to an object"),
        ({"X": [1]}, "the header X renders to a list"),
        ({"X": "\ud800"}, "no UTF-8"),
        ({"Content-Length": "3"}, "is set by Pipo itself"),
        ({"transfer-encoding": "chunked"}, "is set by Pipo itself"),
        ({"X-A": "1", "x-a": "2"}, "the headers X-A and x-a are the same"),
    ],
)
def test_headers_that_no_request_can_have(headers: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused, match=told):
        made({}, headers=headers)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (None, "renders to nothing"),
        ("", "renders to nothing"),
        ("  ", "renders to white space"),
        ({"a": 1}, "renders to an object"),
        (5, "renders to 5"),
        ("127.0.0.1/x", "starts with http:// or https://"),
        ("ftp://host/x", "starts with http:// or https://"),
        ("file:///etc/passwd", "starts with http:// or https://"),
        ("http://", "starts with http:// or https://"),
        ("http:///x", "starts with http:// or https://"),
        ("http://host:port/", "is no URL"),
        ("http://host:99999/", "is no URL"),
        ("http://[::1/", "is no URL"),
        ("http://host/\r\nX: 1", "holds a line break"),
        ("http://host/\tx", "holds a line break"),
    ],
)
def test_urls_that_no_request_can_go_to(url: Any, told: str) -> None:
    with pytest.raises(Refused) as caught:
        made({}, url=url)
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_an_escaped_url_goes_out_as_it_is_and_others_are_escaped() -> None:
    signed = "https://h/a%2Fb%41?x=%2B+%20&sig=A~b%3D"
    assert str(made({}, url=signed).url) == signed
    assert str(made({}, url="https://h/ä b?q=ü c").url) == "https://h/%C3%A4%20b?q=%C3%BC%20c"


def test_user_and_password_become_a_header_and_are_not_shown() -> None:
    asked = made({}, url="http://ada:p%40ss@h:81/x?y=1")
    assert str(asked.url) == "http://h:81/x?y=1"
    assert asked.headers["Authorization"] == "Basic YWRhOnBAc3M="
    assert asked.shown == "POST http://h:81/x?y=1"
    own = made({}, url="http://ada:pw@h/", headers={"authorization": "Bearer t"})
    assert [v for k, v in own.headers.items() if k.lower() == "authorization"] == ["Bearer t"]


def test_a_long_url_is_shown_whole_or_by_its_host() -> None:
    """Half a secret could not be masked."""
    long = "https://user:pw@host:8443/" + "p" * 400
    assert shown(long) == f"https://host:8443/… ({len(long) - 8} characters)"
    assert shown("https://u@h/?a=b@c") == "https://h/?a=b@c"
