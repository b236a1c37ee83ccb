"""Tokens are made once."""

from pathlib import Path

import pytest

from pipo.errors import Conflict
from pipo.home import Home, tokens


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.ensure()
    return home


def test_a_token_is_made_once_and_kept(home: Home) -> None:
    token = tokens.internal_token(home)
    assert len(token) >= 32
    assert tokens.internal_token(home) == token
    assert tokens.admin_token(home) != token
    assert home.internal_token_file.stat().st_mode & 0o777 == 0o600
    assert home.admin_token_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_an_empty_token_is_named(home: Home, content: bytes) -> None:
    home.internal_token_file.write_bytes(content)
    with pytest.raises(Conflict, match="is empty"):
        tokens.internal_token(home)
