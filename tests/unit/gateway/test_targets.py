from __future__ import annotations

import pytest

from pipo_gateway.targets import ingress_target, origin_form, valid


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("/in/a/b", ("a", "/b", "")),
        ("/in/a", ("a", "/", "")),
        ("/in/a/", ("a", "/", "")),
        ("/in/", ("", "/", "")),
        ("/in/a/b/?x=1?2", ("a", "/b/", "x=1?2")),
        ("/in/a?x", ("a", "/", "x")),
        ("/in/a/b%20c%2Fd?x=%20", ("a", "/b c/d", "x=%20")),
        ("/in/a/%2525", ("a", "/%25", "")),
        ("/in/a%2Fb/c", ("a/b", "/c", "")),
        ("/in/a/%ff%00", ("a", "/\ufffd\x00", "")),
        ("/in/a/\udcff?\udcfe", ("a", "/\ufffd", "\ufffd")),
        ("/in/a//b", ("a", "//b", "")),
    ],
)
def test_ingress_targets(target: str, wanted: tuple[str, str, str]) -> None:
    assert ingress_target(target) == wanted


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("http://host/in/a/b?x", "/in/a/b?x"),
        ("HTTPS://host:1", "/"),
        ("*", "*"),
        ("host:443", "host:443"),
        ("ftp://host/x", "ftp://host/x"),
    ],
)
def test_absolute_targets_become_paths(target: str, wanted: str) -> None:
    assert origin_form(target) == wanted


def test_valid_text_is_left_alone() -> None:
    assert valid("é") == "é"
    assert valid("a\udc80b") == "a\ufffdb"
