"""bots.json: what it holds, and everything that can be wrong with it at once."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from pipo.errors import BadRequest
from pipo.home import Home, bots


def home(folder: Path, value: Any) -> Home:
    made = Home(folder)
    made.bots_file.write_text(value if isinstance(value, str) else json.dumps(value))
    made.bots_file.chmod(0o600)
    return made


def telegram(default: Any = None, **entries: Any) -> Any:
    return {"telegram": {"default": default, "bots": entries}}


def problems(folder: Path, value: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        bots.read(home(folder, value))
    return caught.value.message


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert bots.read(Home(tmp_path)) == bots.NO_BOTS
    assert bots.read(home(tmp_path, {})) == bots.NO_BOTS


def test_every_field_and_its_default(tmp_path: Path) -> None:
    entry = {"token": "1:a", "allow": [7, -8], "poll_every": "2s", "api": "http://127.0.0.1:9/"}
    read = bots.read(home(tmp_path, telegram("ops", ops=entry, plain={"token": "env:T"})))
    assert read.default == "ops"
    assert read.bots["ops"] == bots.Bot("ops", "1:a", (7, -8), 2.0, "http://127.0.0.1:9")
    assert read.bots["plain"] == bots.Bot("plain", "env:T", None, 25.0, "https://api.telegram.org")


def test_a_token_is_written_out_or_a_reference(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("3:c\n")
    for ref, token in (("1:a", "1:a"), ("env:BOT", "2:b"), (f"file:{tmp_path / 't'}", "3:c")):
        read = bots.read(home(tmp_path, telegram(b={"token": ref})))
        assert read.bots["b"].token({"BOT": "2:b"}) == token
    with pytest.raises(BadRequest, match=r"token of bot b.*BOT is not set"):
        bots.read(home(tmp_path, telegram(b={"token": "env:BOT"}))).bots["b"].token({})


def test_one_error_counts_and_names_every_problem(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        telegram(
            "none",
            a={"token": "s3cr3t-t", "poll_every": "500ms", "extra": 1, "allow": ["x"]},
            b={"token": " ", "poll_every": 5, "api": "ftp://h"},
            C=3,
        ),
    )
    assert told.startswith(f"{tmp_path}/bots.json has 10 problems: ")
    for one in (
        "telegram.default is no bot here; there are: C, a, b",
        "telegram.bots.a.poll_every is shorter than 1s",
        "telegram.bots.a.extra is not known; there are: token, allow, poll_every, api",
        "telegram.bots.a.allow is not a list of chat or user ids",
        "telegram.bots.b.token is empty",
        "telegram.bots.b.poll_every is no duration such as 25s",
        "telegram.bots.b.api is no http:// or https:// address",
        "telegram.bots.C: a name is made of a-z, 0-9, - and _",
        "telegram.bots.C is not an object",
        "telegram.bots.C.token is empty",
    ):
        assert one in told
    assert "s3cr3t" not in told


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"telegram": []}', "[" * 100_000])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    assert str(tmp_path / "bots.json") in problems(tmp_path, text)


def test_a_broken_file_shows_nothing_of_its_text(tmp_path: Path) -> None:
    assert "s3cr3t" not in problems(tmp_path, '{"telegram": {"bots": {"a": {"token": "s3cr3t')


def test_the_rights_of_others_are_taken_away(tmp_path: Path) -> None:
    made = home(tmp_path, telegram(a={"token": "1:a"}))
    made.bots_file.chmod(0o664)
    bots.read(made)
    assert stat.S_IMODE(made.bots_file.stat().st_mode) == 0o600
