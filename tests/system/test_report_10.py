"""R10: a signature is over the bytes received, whatever their spacing, framing or size."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from collections.abc import Iterator

import pytest

from tests.packets import running
from tests.stack import Stack

pytestmark = pytest.mark.slow

GH = """\
secrets: { s: env:GH_SECRET }
input: { via: http, with: { path: /gh, auth: { hmac: { header: X-Hub-Signature-256, secret: "${secrets.s}", algorithm: sha256 } } } }
output: { from: input, to: file, with: { path: ./out/gh.jsonl, format: jsonl } }
"""
A = '{"action": "opened",  "n": 1.0, "name": "Zoë"}'.encode()
B = b'{"a":1}'
BIG = b'{"x":"' + b"y" * 2_000_000 + b'"}'
DIGESTS = [
    (A, "9fad829d962c8b4002754aa372f1899c4b695383dbad87c4e1090fa1ba4bbffa", 202),
    (A, "fa647f156d987ffc95a5c3a7a0550fd7b5d2e9e17a9f500f7231a8cb656cb6c5", 401),
    (B, "14220a5d1a8660550c0bcfe70cfefff4e921bd1009d29ac825b99aac47e01d18", 202),
    (B + b"\n", "14220a5d1a8660550c0bcfe70cfefff4e921bd1009d29ac825b99aac47e01d18", 401),
    (B + b"\n", "3a7debbde5af106bc9d7c8ec74a37359a383306f590cd7e6f445c34f51a46093", 202),
    (BIG, hmac.new(b"topsecret-1", BIG, hashlib.sha256).hexdigest(), 202),
    (BIG[:-1] + b" }", hmac.new(b"topsecret-1", BIG, hashlib.sha256).hexdigest(), 401),
]


@pytest.fixture(scope="module")
def gh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("gh")
    with running(folder, {"gh": GH}, env={"GH_SECRET": "topsecret-1"}) as made:
        yield made


@pytest.mark.parametrize("query", ["", "?sig=1&a=%2F"], ids=["bare", "query"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_the_bytes_decide(gh: Stack, chunked: bool, query: str) -> None:
    for body, digest, wanted in DIGESTS:
        accepted = gh.stats("gh")["accepted"]
        connection = http.client.HTTPConnection("127.0.0.1", gh.port, timeout=60)
        pieces = (body[at : at + 100_000] for at in range(0, len(body), 100_000))
        connection.request(
            "POST",
            f"/in/gh/gh{query}",
            pieces if chunked else body,
            {"X-Hub-Signature-256": f"sha256={digest}"},
            encode_chunked=chunked,
        )
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == wanted, (body[:60], digest)
        assert gh.stats("gh")["accepted"] == accepted + (wanted == 202)


def test_no_signature_is_refused_with_the_headers_name(gh: Stack) -> None:
    status, _, answer = gh.request("/in/gh/gh", B)
    assert status == 401
    assert b"X-Hub-Signature-256" in answer
