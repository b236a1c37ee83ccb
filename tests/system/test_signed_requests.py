"""Requests signed by another program: openssl makes the digest, curl sends the bytes (report R10)."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import running
from tests.stack import Stack, free_ports, journal_of, query

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("curl")), reason="needs openssl and curl"
    ),
]

SECRET = "topsecret-1"
UNUSUAL = bytes(range(256)) + b"\r\n\r\n\0\xff\xfe \xef\xbb\xbf\xed\xa0\xbd--\n"
BIG = random.Random(10).randbytes(2_000_000)


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Stack]:
    text = (
        "secrets: { s: env:GH_SECRET }\n"
        f"input: {{ via: http, format: bytes, with: {{ path: /gh, listen: {port}, "
        'auth: { hmac: { header: X-Hub-Signature-256, secret: "${secrets.s}" } } } }\n'
        "output: { from: input, to: file, with: { path: ./gh.jsonl } }\n"
    )
    folder = tmp_path_factory.mktemp("signed")
    with running(folder, {"gh": text}, env={"GH_SECRET": SECRET}) as made:
        yield made


def digest(body: bytes) -> str:
    """The header's value, by openssl."""
    command = ["openssl", "dgst", "-sha256", "-hmac", SECRET, "-r"]
    done = subprocess.run(command, input=body, capture_output=True, check=True, timeout=30)
    return "sha256=" + done.stdout.split()[0].decode()


def sent(url: str, file: Path, signature: str, *more: str) -> int:
    """The status that curl sees."""
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST"]
    command += ["--data-binary", f"@{file}", "-H", f"X-Hub-Signature-256: {signature}"]
    done = subprocess.run([*command, *more, url], capture_output=True, timeout=60)
    return int(done.stdout)


@pytest.mark.parametrize("door", ["the gateway", "a port of its own"])
@pytest.mark.parametrize("body", [b"", UNUSUAL, BIG], ids=["empty", "unusual", "2 MB"])
def test_signed_bytes_are_taken_and_changed_ones_leave_nothing(
    signed: Stack, port: int, tmp_path: Path, body: bytes, door: str
) -> None:
    url = signed.url("/in/gh/gh") if door == "the gateway" else f"http://127.0.0.1:{port}/gh"
    good, changed = tmp_path / "good", tmp_path / "changed"
    good.write_bytes(body)
    bits = random.Random(len(body)).sample(range(8 * len(body)), 3) if body else []
    signature = digest(body)
    ways: list[list[str]] = [
        [],
        ["-H", "Transfer-Encoding: chunked"],
        ["-H", "Expect: 100-continue"],
    ]
    accepted = signed.stats("gh")["accepted"]
    for bit, way in zip(bits, ways, strict=False):
        other = bytearray(body)
        other[bit // 8] ^= 1 << bit % 8
        changed.write_bytes(other)
        assert sent(url, changed, signature, *way) == 401
    for wrong in (digest(body + b"\n"), "sha256=", "", signature[:-1], signature + "0"):
        assert sent(url, good, wrong) == 401
    rows = "SELECT count(*) FROM units"
    assert query(journal_of(signed.home, "gh"), rows) == [[accepted]]
    for way in ways:
        assert sent(f"{url}?signed=no&a=%2F", good, signature, *way) == 202
    signed.settle("gh")
    newest = "SELECT json_extract(data, '$.base64') FROM units ORDER BY id DESC LIMIT 3"
    assert [base64.b64decode(one) for [one] in query(journal_of(signed.home, "gh"), newest)] == (
        [body] * 3
    )
