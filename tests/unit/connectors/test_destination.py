"""What a person reads when a destination's file cannot be written (R46)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipo.connectors import destination


def test_a_refused_path_names_process_owner_mode_and_the_mending_command(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("")
    path.chmod(0o640)
    error = PermissionError(errno.EACCES, "Permission denied", str(path))
    failed = destination.cannot_write(str(path), error)
    assert f"{os.geteuid()}:{os.getegid()}" in failed.message
    assert "mode 0640" in failed.message
    assert str(path) in failed.hint


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "disk space"), (errno.EROFS, "read-only"), (errno.EBUSY, "mount its folder")],
)
def test_what_has_a_way_out_says_it(number: int, hint: str) -> None:
    failed = destination.cannot_write("/x/out.db", OSError(number, os.strerror(number)))
    assert failed.message == f"/x/out.db: {os.strerror(number)}"
    assert hint in failed.hint


def test_a_library_that_says_nothing_is_helped_out_only_where_the_modes_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "out.db")
    assert destination.cannot_open(path) is None
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    failed = destination.cannot_open(path)
    assert failed is not None
    assert str(tmp_path) in failed.message
