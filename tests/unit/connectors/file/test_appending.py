"""Files of JSON lines that two writers share."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from pipo.connectors.contract import WriteFailed
from pipo.connectors.file import locking
from pipo.connectors.file.appending import AppendedFile
from pipo.connectors.file.records import Record

DEADLINE_S = 20.0


def line(key: str) -> Record:
    return Record(key, b'{"packet_id":"%s"}\n' % key.encode(), "first")


class Meeting:
    """The one writer is about to append when the other one finds the disk full half way."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(path)
        self.failed: list[WriteFailed] = []
        self._met = threading.Event()
        self._over = threading.Event()
        self._full = threading.Thread(target=self._run_out_of_space)
        self._write, self._try = os.write, locking.try_to_take
        monkeypatch.setattr(os, "write", self._written)
        monkeypatch.setattr(locking, "try_to_take", self._tried)

    def hold(self) -> None:
        AppendedFile(self.path, 0).write([line("whole")], atomic=True)
        self._over.set()
        self._full.join(DEADLINE_S)

    def _run_out_of_space(self) -> None:
        try:
            AppendedFile(self.path, 0).write([line("half")], atomic=True)
        except WriteFailed as error:
            self.failed.append(error)

    def _written(self, handle: int, data: bytes) -> int:
        if threading.current_thread() is self._full:
            if len(data) == len(line("half").text):
                return self._write(handle, data[:7])
            self._met.set()
            assert self._over.wait(DEADLINE_S)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._full.start()
        assert self._met.wait(DEADLINE_S)
        return self._write(handle, data)

    def _tried(self, handle: int) -> bool:
        taken = self._try(handle)
        if not taken:
            self._met.set()
        return taken


def test_a_record_never_stands_behind_half_a_record_of_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shared.jsonl"
    meeting = Meeting(path, monkeypatch)
    meeting.hold()
    assert path.read_text() == '{"packet_id":"whole"}\n'
    assert len(meeting.failed) == 1


def test_a_file_that_is_replaced_while_it_is_waited_for_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rotated.jsonl"
    take = locking.take

    def rotated(handle: int, name: str) -> None:
        monkeypatch.setattr(locking, "take", take)
        path.rename(tmp_path / "rotated.1.jsonl")
        take(handle, name)

    monkeypatch.setattr(locking, "take", rotated)
    AppendedFile(str(path), 0).write([line("a")], atomic=True)
    assert path.read_text() == '{"packet_id":"a"}\n'
    assert (tmp_path / "rotated.1.jsonl").read_text() == ""
