"""R12: a form keeps its repeated fields, its files' names and bytes; a broken one is a clear 400."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import running, settled
from tests.stack import Stack
from tests.system.test_bad_input import peak_mb

pytestmark = pytest.mark.slow

FORM = """\
input: { via: http, format: form, with: { path: /form } }
output: { from: input, to: file, with: { path: ./out/form.jsonl } }
"""
DOOR = "/in/form/form"
BINARY = bytes(range(256)) * 4
MULTIPART = "multipart/form-data; boundary=Z"


@pytest.fixture(scope="module")
def form(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("form"), {"form": FORM}) as made:
        yield made


def part(name: str, body: bytes, filename: str | None = None) -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    return (
        f'--Z\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode()
        + body
        + b"\r\n"
    )


def data_of(form: Stack, body: bytes, content_type: str) -> Any:
    status, _, answer = form.request(DOOR, body, headers={"content-type": content_type})
    assert status == 202, answer
    return settled(form, "form", json.loads(answer)["packet_id"])["data"]


def every_file(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("files_first", [False, True])
def test_a_mixed_form(form: Stack, files_first: bool) -> None:
    texts = part("a", b"1") + part("a", b"2") + part("b", b"x")
    files = (
        part("one", b"hello", "x.txt")
        + part("two", BINARY, "y.bin")
        + part("evil", b"hello", "../../x.txt")
    )
    around = form.workspace.parent
    before = every_file(around)
    body = (files + texts if files_first else texts + files) + b"--Z--\r\n"
    data = data_of(form, body, MULTIPART)
    assert (data["a"], data["b"]) == (["1", "2"], "x")
    assert set(data) == {"a", "b", "one", "two", "evil"}
    found = {
        name: (data[name]["filename"], base64.b64decode(data[name]["base64"]))
        for name in ("one", "two", "evil")
    }
    assert found == {
        "one": ("x.txt", b"hello"),
        "two": ("y.bin", BINARY),
        "evil": ("../../x.txt", b"hello"),
    }
    assert {
        name for name in every_file(around) - before if "x.txt" in name or "y.bin" in name
    } == set()


def test_an_urlencoded_form(form: Stack) -> None:
    data = data_of(form, b"a=1&a=2&b=x+y%26z&empty=", "application/x-www-form-urlencoded")
    assert data == {"a": ["1", "2"], "b": "x y&z", "empty": ""}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MULTIPART, b"no boundary here\n"),
        ("multipart/form-data", b"x"),
        (MULTIPART, part("f", b"x")),
    ],
    ids=["no boundary", "none named", "no end"],
)
def test_a_broken_form_is_a_400_at_once(form: Stack, content_type: str, body: bytes) -> None:
    status, _, answer = form.request(
        DOOR, body, headers={"content-type": content_type}, timeout_s=30
    )
    assert status == 400, answer
    assert json.loads(answer)["hint"]


@pytest.mark.parametrize("head", [part("f", b"", "f"), b""], ids=["a file", "an endless preamble"])
def test_200_megabytes_are_cut_off_early(form: Stack, head: bytes) -> None:
    pids = [form.pipeline_pid("form"), form.service_pid("gateway")]
    before = [peak_mb(pid) for pid in pids]
    connection = http.client.HTTPConnection("127.0.0.1", form.port, timeout=60)
    connection.putrequest("POST", DOOR)
    connection.putheader("Content-Type", MULTIPART)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    piece, sent = bytes(1 << 20), 0
    try:
        connection.send(b"%x\r\n%s\r\n" % (len(head) or 1, head or b"x"))
        for _ in range(200):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            sent += 1
    except OSError:
        pass  # The server has answered and closed; what it said is read below.
    try:
        answer = connection.getresponse()
        assert answer.status == 413
        assert "packet_limit" in answer.read().decode()
    except OSError:
        assert sent < 100, "the whole body was read"
    connection.close()
    for pid, mb in zip(pids, before, strict=True):
        assert peak_mb(pid) < mb + 100
