"""Who runs the program."""

from __future__ import annotations

import getpass
import os

import pytest

from pipo_cli.names import os_user


def test_the_os_user_is_known_by_name() -> None:
    assert os_user() == getpass.getuser()


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no user name")])
def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert os_user() == f"uid {os.getuid()}"
