"""Bodies and pushed texts into packets (edges 88-99; reports R04, R12)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipo import payload
from pipo.connectors import form_format
from pipo.connectors.formats import parse_body, parse_pushed
from pipo.errors import BadRequest


def parsed(format: str, body: bytes | str, content_type: str = "") -> list[Any]:
    raw = body.encode() if isinstance(body, str) else body
    return list(parse_body(format, raw, content_type))


def refused(format: str, body: bytes | str, content_type: str = "") -> str:
    with pytest.raises(BadRequest) as caught:
        parsed(format, body, content_type)
    assert caught.value.hint
    return caught.value.message


# ── json, text, bytes ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "value"),
    [("null", None), ("[1, 2]", [1, 2]), ('"x"', "x"), ("18446744073709551616", 2**64)],
)
def test_json_takes_any_value(body: str, value: Any) -> None:
    assert parsed("json", body) == [value]


@pytest.mark.parametrize(
    "body", ["", "{", '{"a":1,"a":2}', "NaN", '"\\ud83d"', b'"\xed\xa0\xbd"', "[" * 10_000]
)
def test_json_that_is_none_is_refused_with_the_reason(body: bytes | str) -> None:
    assert refused("json", body).startswith("the body is not JSON: ")


def test_text_takes_any_text() -> None:
    assert parsed("text", "") == [""]
    assert parsed("text", "ü\n") == ["ü\n"]
    assert refused("text", b"ab\xff") == "the body is not UTF-8 text (byte 2)"


def test_bytes_keep_everything() -> None:
    assert parsed("bytes", b"\x00\xff") == [
        {"base64": "AP8=", "content_type": "application/octet-stream", "size": 2}
    ]
    assert parsed("bytes", b"", "image/png")[0]["content_type"] == "image/png"


# ── csv ──────────────────────────────────────────────────────────────────────


def test_a_spreadsheet_export() -> None:
    body = b'\xef\xbb\xbfid,zip,name\r\n1,02134,"Ann ""A"" B"\r\n2,,"x;y"\r\n\r\n'
    assert parsed("csv", body) == [
        {"id": "1", "zip": "02134", "name": 'Ann "A" B'},
        {"id": "2", "zip": "", "name": "x;y"},
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoted", [False, True])
def test_every_line_end(end: str, quoted: bool) -> None:
    first = '"a"' if quoted else "a"
    body = end.join(["", f"{first},b", "", "1,2", "3,4"])
    assert parsed("csv", body) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_quotes_may_hold_commas_quotes_and_line_breaks() -> None:
    body = 'a,b\n"1,\r\n2","""x"""\n"",""\n'
    assert parsed("csv", body) == [{"a": "1,\r\n2", "b": '"x"'}, {"a": "", "b": ""}]


def test_one_column() -> None:
    assert parsed("csv", 'a\n1\n\n""\n') == [{"a": "1"}, {"a": ""}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "the csv is empty"),
        ("\r\n\n", "the csv is empty"),
        ("a,b\n", "the csv holds a header and no record"),
        (
            "id,zip,name\r\n1,2,3\r\n2,10001,Bo,extra\r\n",
            "line 3 has 4 values, and the header names 3 columns",
        ),
        (
            "id,zip,name\r\n1,2,3\r\n3,94105\r\n",
            "line 3 has 2 values, and the header names 3 columns",
        ),
        ('a,b\n"1\n\n1",2\n\n3\n', "line 6 has 1 values, and the header names 2 columns"),
        ("id,id\r\n1,2\r\n", "line 1: the column 'id' stands twice"),
        ("\nid,\n1,2\n", "line 2: column 2 has no name"),
        ('a,b\n1,"2\n3,4\n', "line 2: a quote is not closed"),
        ('a,b\n1,2"x"\n', "line 2: a quote stands inside a plain field"),
        ('a,b\n1,"2"x\n', "line 2: text follows a closing quote"),
        (b"\xff\xfei\x00d\x00", "the body is not UTF-8 text (byte 0)"),
    ],
)
def test_csv_that_is_refused(body: bytes | str, message: str) -> None:
    assert refused("csv", body) == message


@pytest.mark.parametrize("format", ["json", "csv"])
def test_an_upload_by_a_form_is_told_how_to_be_sent(format: str) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\na\r\n1\r\n--b--\r\n'
    with pytest.raises(BadRequest, match=f"a multipart form, and this input takes {format}") as no:
        parse_body(format, body, "multipart/form-data; boundary=b")
    assert "curl --data-binary @FILE" in no.value.hint
    # A wrong label alone refuses nothing.
    assert list(parse_body("json", b"1", "multipart/form-data; boundary=b")) == [1]


def test_a_bad_record_refuses_the_body_before_the_first_packet() -> None:
    with pytest.raises(BadRequest):
        parse_body("csv", b"a,b\n1,2\n3\n")


def test_a_long_csv_is_given_piece_by_piece() -> None:
    packets = parse_body("csv", b"a\n" + b"1\n" * 100_000)
    assert not isinstance(packets, (list, tuple))
    assert next(iter(packets)) == {"a": "1"}


# ── forms ────────────────────────────────────────────────────────────────────


def test_urlencoded() -> None:
    assert parsed("form", "a=1&a=2&b=x+y%26z&empty=&%C3%BC=%F0%9F%98%80&bare") == [
        {"a": ["1", "2"], "b": "x y&z", "empty": "", "ü": "\U0001f600", "bare": ""}
    ]
    assert parsed("form", "", "application/x-www-form-urlencoded; charset=utf-8") == [{}]


def test_urlencoded_that_is_refused() -> None:
    assert "no UTF-8" in refused("form", "a=%ff")
    assert refused("form", b"a=\xff") == "the form is not UTF-8 text (byte 2)"
    assert refused("form", "&".join("a" * 10_001)) == "the form holds more than 10,000 fields"
    assert refused("form", "{}", "application/json") == (
        "a form cannot have the content type 'application/json'"
    )


def multipart(*parts: tuple[str, bytes], boundary: str = "Z") -> bytes:
    made = b"".join(
        f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n" for head, content in parts
    )
    return made + f"--{boundary}--\r\n".encode()


FORM = 'Content-Disposition: form-data; name="{}"'


def test_multipart_keeps_names_order_and_content() -> None:
    body = multipart(
        (FORM.format("a"), b"1"),
        (FORM.format("one") + '; filename="x.txt"\r\nContent-Type: text/plain', b"hi"),
        (FORM.format("a"), b"2"),
        (FORM.format("two") + "; filename=y.bin", b"\x00\r\n--not\xff"),
        (FORM.format("evil") + '; filename="../../x.txt"', b""),
        (FORM.format("say %22hi%22") + '; filename="a\\"b\\c"', b""),
    )
    (form,) = parsed("form", b"preamble\r\n" + body, 'Multipart/Form-Data; boundary="Z"')
    assert form["a"] == ["1", "2"]
    assert form["one"] == {
        "filename": "x.txt",
        "content_type": "text/plain",
        "size": 2,
        "base64": "aGk=",
    }
    assert base64.b64decode(form["two"]["base64"]) == b"\x00\r\n--not\xff"
    assert form["two"]["filename"] == "y.bin"
    assert form["evil"]["filename"] == "../../x.txt"
    assert form['say "hi"']["filename"] == 'a"b\\c'
    assert list(form) == ["a", "one", "two", "evil", 'say "hi"']


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"no boundary here\n", "multipart/form-data; boundary=Z", "does not hold the boundary"),
        (b"x", "multipart/form-data", "names no boundary"),
        (b"x", "multipart/form-data; boundary=" + "Z" * 71, "names no boundary"),
        (multipart((FORM.format("a"), b"1"))[:-4], "multipart/form-data; boundary=Z", "without its closing boundary"),
        (multipart(("X: y", b"1")), "multipart/form-data; boundary=Z", "names no form field"),
        (b"--Z\r\nno blank line\r\n--Z--", "multipart/form-data; boundary=Z", "no blank line"),
        (b"--Zx\r\n\r\n--Z--", "multipart/form-data; boundary=Z", "followed by other text"),
        (multipart((FORM.format("a"), b"\xff")), "multipart/form-data; boundary=Z", "'a' is not UTF-8"),
    ],
)  # fmt: skip
def test_multipart_that_is_refused(body: bytes, content_type: str, message: str) -> None:
    assert message in refused("form", body, content_type)


def test_a_multipart_of_too_many_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_format, "FIELDS_MAX", 2)
    body = multipart(*[(FORM.format("a"), b"")] * 3)
    assert "more than 2 fields" in refused("form", body, "multipart/form-data; boundary=Z")


# ── pushed ───────────────────────────────────────────────────────────────────


def test_a_pushed_text_is_parsed_like_a_body() -> None:
    assert parse_pushed("csv", "a,b\n1,2\n") == {"a": "1", "b": "2"}
    assert parse_pushed("form", "a=1&b=2") == {"a": "1", "b": "2"}
    assert parse_pushed("bytes", "hi")["base64"] == "aGk="


@pytest.mark.parametrize("format", ["json", "text", "csv", "form", "bytes"])
def test_a_pushed_value_with_nothing_left_to_parse_stays(format: str) -> None:
    assert parse_pushed(format, {"a": [1]}) == {"a": [1]}
    if format in ("json", "text"):
        assert parse_pushed(format, '{"a":') == '{"a":'


def test_a_pushed_csv_holds_one_record() -> None:
    with pytest.raises(BadRequest, match="more than one record"):
        parse_pushed("csv", "a\n1\n2\n")
    with pytest.raises(BadRequest, match="no record"):
        parse_pushed("csv", "a\n")
    with pytest.raises(BadRequest, match="not UTF-8"):
        parse_pushed("csv", "a\n\ud83d\n")


@pytest.mark.parametrize(
    ("sent", "filename"),
    [
        ("filename*=UTF-8''%E2%82%AC%20rates.csv", "€ rates.csv"),
        ("filename*=iso-8859-1'en'%A3", "£"),
        ("filename=\"plain.csv\"; filename*=UTF-8''other.csv", "plain.csv"),
    ],
)
def test_a_file_name_with_its_charset(sent: str, filename: str) -> None:
    body = multipart((FORM.format("f") + f"; {sent}", b"\xff"))
    (form,) = parsed("form", body, "multipart/form-data; boundary=Z")
    assert (form["f"]["filename"], form["f"]["base64"]) == (filename, "/w==")


@pytest.mark.parametrize("sent", ["UTF-8''%ff", "koi8-r''a", "a.csv"])
def test_a_file_name_that_cannot_be_read(sent: str) -> None:
    body = multipart((FORM.format("f") + f"; filename*={sent}", b""))
    assert "cannot be read" in refused("form", body, "multipart/form-data; boundary=Z")


def test_a_part_whose_headers_have_no_end() -> None:
    body = multipart((FORM.format("a" * 17_000), b""))
    assert refused("form", body, "multipart/form-data; boundary=Z") == (
        "a part has headers of more than 16 KiB"
    )


_PIECES = st.sampled_from(
    [
        b"--Z", b"--", b"\r\n", b"\n", b"a", b"=", b"&", b"%", b"%41", b"%ff", b"+", b'"', b"\\", b";", b",",
        b"\xff", b"\xc3\xbc", b"\0", b"{", b"}", b"[", b"1e9", b"null", b": ", b"\xef\xbb\xbf",
        b'Content-Disposition: form-data; name="a"', b"; filename=x", b"; filename*=UTF-8''%41",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["json", "text", "csv", "form", "bytes"]),
    st.one_of(st.lists(_PIECES, max_size=20).map(b"".join), st.binary(max_size=40)),
    st.sampled_from(["", "multipart/form-data; boundary=Z", 'multipart/form-data; boundary="']),
)
def test_any_bytes_are_packets_or_one_clear_refusal(
    format: str, body: bytes, content_type: str
) -> None:
    try:
        packets = list(parse_body(format, body, content_type))
    except BadRequest as error:
        assert error.message and error.hint  # noqa: PT017, PT018 - either end is right
        return
    assert packets
    for packet in packets:
        assert payload.decode(payload.encode(packet)) == packet
