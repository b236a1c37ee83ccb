"""Mount points, notices of the kernel, and times as packets hold them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from pipo.connectors.watch import folder
from pipo.connectors.watch.folder import is_unmounted, mount_of
from pipo.connectors.watch.notices import Notice, parse
from pipo.connectors.watch.packets import time_of
from pipo.connectors.watch.snapshot import Stamp


def test_the_mount_point_of_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = ("/", "/mnt", "/mnt/my\\040share", "/mnt/my\\040share\\134x")
    lines = [f"36 35 98:0 /root {point} rw - nfs server:/x rw\n" for point in points]
    mounts = tmp_path / "mountinfo"
    mounts.write_text("".join(lines))
    monkeypatch.setattr(folder, "_MOUNTS", mounts)
    assert mount_of("/srv/in") == "/"
    assert mount_of("/mnt") == "/mnt"
    assert mount_of("/mntx") == "/"
    assert mount_of("/mnt/my share/in") == "/mnt/my share"
    assert mount_of("/mnt/my share\\x/in") == "/mnt/my share\\x"
    monkeypatch.setattr(folder, "_MOUNTS", tmp_path / "none")
    assert mount_of("/mnt") == "/"


def test_a_mount_is_gone_where_one_above_it_is_left() -> None:
    assert is_unmounted("/mnt/share", "/mnt")
    assert is_unmounted("/mnt/share", "/")
    assert not is_unmounted("/mnt", "/mnt")
    assert not is_unmounted("/", "/mnt")
    assert not is_unmounted("/mnt/share", None)


def test_the_events_of_one_read() -> None:
    name = os.fsencode("caf\udce9")
    raw = struct.pack("iIII", 1, 0x100, 0, 16) + name.ljust(16, b"\0")
    raw += struct.pack("iIII", -1, 0x4000, 0, 0)
    assert list(parse(raw)) == [Notice(1, 0x100, "caf\udce9"), Notice(-1, 0x4000, "")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.000Z"),
        (2**40, "9999-12-31T23:59:59.999Z"),
        (-(2**40), "1000-01-01T00:00:00.000Z"),
    ],
)
def test_times_that_files_can_have(seconds: int, text: str) -> None:
    assert time_of(Stamp(seconds * 10**9, 0)) == text
