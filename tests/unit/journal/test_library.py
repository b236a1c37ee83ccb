"""Which SQLite and which file systems may hold a journal."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from pipo.journal.library import UnsafeStorage, refuse_affected, refuse_network

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
23 22 0:20 / /home rw shared:1 - nfs4 server:/home rw
24 22 0:21 / /mnt/my\\040share rw - cifs //server/share rw
25 23 254:1 / /home/local rw - xfs /dev/sdb rw
26 22 0:22 / /over rw - nfs server:/x rw
27 22 0:23 / /over rw - tmpfs tmpfs rw
28 22 0:24 / /vol rw - fuse.sshfs me@server: rw
"""


@pytest.mark.parametrize(
    "version", ["3.7.0", "3.40.1", "3.44.5", "3.50.6", "3.51.0", "3.51.2", "3.45.3"]
)
def test_affected_libraries_are_refused(version: str) -> None:
    with pytest.raises(UnsafeStorage, match=version):
        refuse_affected(version, "apsw")


@pytest.mark.parametrize(
    "version", ["3.44.6", "3.44.9", "3.50.7", "3.51.3", "3.52.0", "3.54.1", "4.0.0"]
)
def test_mended_libraries_pass(version: str) -> None:
    refuse_affected(version, "apsw")


def test_the_installed_libraries_pass() -> None:
    from pysqlite3 import dbapi2

    refuse_affected(apsw.sqlite_lib_version(), "apsw")
    refuse_affected(dbapi2.sqlite_version, "pysqlite3")


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/home/ada/.pipo", "nfs4"), ("/mnt/my share/x", "cifs"), ("/vol/p", "fuse.sshfs")],
)
def test_a_network_file_system_is_refused(folder: str, kind: str) -> None:
    with pytest.raises(UnsafeStorage, match=kind) as caught:
        refuse_network(Path(folder), MOUNTS)
    assert "local disk" in caught.value.hint


@pytest.mark.parametrize(
    "folder", ["/var/lib/pipo", "/home/local/x", "/homely", "/over/p", "/volume"]
)
def test_a_local_file_system_passes(folder: str) -> None:
    refuse_network(Path(folder), MOUNTS)


def test_this_machine_is_asked_when_no_mounts_are_given(tmp_path: Path) -> None:
    refuse_network(tmp_path)
