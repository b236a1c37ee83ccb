"""A small body that grows is cut at the limit."""

from __future__ import annotations

import gzip
import zlib

import pytest

from pipo.connectors.http.inflating import NotInflated, inflated

BODY = b'{"email":"a@x"}'


def bare(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("packed", "coding"),
    [
        (BODY, ""),
        (BODY, "identity"),
        (gzip.compress(BODY, mtime=0), "gzip"),
        (gzip.compress(BODY, mtime=0), " GZIP "),
        (zlib.compress(BODY), "deflate"),
        (bare(BODY), "deflate"),
    ],
)
def test_each_coding_is_undone(packed: bytes, coding: str) -> None:
    assert inflated(packed, coding, 100) == BODY


def test_a_bomb_is_undone_up_to_the_limit_only() -> None:
    assert len(inflated(gzip.compress(bytes(50_000_000)), "gzip", 1000)) == 1001


@pytest.mark.parametrize("coding", ["br", "gzip", "deflate", "gzip, gzip"])
def test_what_cannot_be_undone_says_so(coding: str) -> None:
    with pytest.raises(NotInflated, match="the answer is"):
        inflated(b"\xff\xff plain", coding, 100)
