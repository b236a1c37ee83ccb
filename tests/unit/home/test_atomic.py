"""Files are whole or as they were."""

import os
from pathlib import Path

import pytest

from pipo.errors import PipoError
from pipo.home import atomic


def test_a_failed_rename_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    atomic.replace(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(PipoError, match=f"cannot write {path}: No space left"):
        atomic.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_durable_syncs_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    atomic.replace(tmp_path / "f", b"x", durable=True)
    assert len(synced) == 2
    assert synced[1] == os.path.realpath(tmp_path)


def test_the_first_to_create_wins(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert atomic.create_once(path, b"1", mode=0o600)
    assert not atomic.create_once(path, b"2", mode=0o600)
    assert path.read_bytes() == b"1"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
