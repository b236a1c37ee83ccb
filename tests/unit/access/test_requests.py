"""What a start and a restart may say, judged before anybody is asked (edge 322, 403, 414)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.access.requests import FILES_MAX, TooLarge, check_restart, check_start
from pipo.errors import BadRequest
from pipo.rpc.stubs import pipo_pb2

START, RESTART = pipo_pb2.StartRequest, pipo_pb2.RestartRequest


@pytest.mark.parametrize(
    "said",
    [
        {"target": "x"},
        {"target": "x", "ttl": "30m", "listen": 1, "detached": False},
        {"target": "x", "ttl": "1ms", "listen": 65535},
        {"name": "x", "source": "pipo: 1", "files": {"./a.py": ""}, "ttl": "1.5h"},
    ],
)
def test_what_a_start_may_say(said: dict[str, Any]) -> None:
    check_start(START(**said))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, "there is nothing to start"),
        ({"target": "x", "source": "pipo: 1"}, "both a file and source are given"),
        ({"target": "x", "files": {"a": "b"}}, "both a file and files are given"),
        ({"name": "x"}, "source is missing"),
        ({"source": "pipo: 1"}, "name is missing"),
        ({"files": {"a": "b"}}, "name is missing"),
    ],
)
def test_a_file_or_a_text(said: dict[str, Any], error: str) -> None:
    with pytest.raises(BadRequest, match=f"^{error}$"):
        check_start(START(**said))


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ({"ttl": ""}, "ttl: '' is not a duration", "like 30m"),
        ({"ttl": "5"}, "ttl: '5' is not a duration", "like 30m"),
        ({"ttl": "0s"}, "ttl is '0s'", "at least 1ms"),
        ({"ttl": "0.4ms"}, "ttl is '0.4ms'", "at least 1ms"),
        ({"ttl": "1000001d"}, "ttl is '1000001d'", "at most 1000000d"),
        ({"listen": 0}, "listen is 0", "use 1-65535"),
        ({"listen": 65536}, "listen is 65536", "use 1-65535"),
    ],
)
def test_an_override_is_judged_at_the_door(said: dict[str, Any], error: str, hint: str) -> None:
    doors: list[Any] = [(check_start, START(target="x")), (check_restart, RESTART(pipeline="x"))]
    for check, request in doors:
        for key, value in said.items():
            setattr(request, key, value)
        with pytest.raises(BadRequest, match=f"^{error}") as caught:
            check(request)
        assert hint in caught.value.hint


def test_too_many_files_are_too_large() -> None:
    files = {str(n): "" for n in range(FILES_MAX + 1)}
    with pytest.raises(TooLarge, match="257 files"):
        check_start(START(name="x", source="y", files=files))
