"""The lease: held by a living process, asked about without being taken."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict, Unavailable
from pipo.home import leases
from pipo.home.leases import Lease

CLOCK = SystemClock()
CHILD = """
import sys
from pathlib import Path
from pipo.clock import SystemClock
from pipo.home.leases import Lease
lease = Lease.acquire(Path(sys.argv[1]), clock=SystemClock(), wait_s=0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_child(path: Path) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


def test_nobody_holds_a_lease_that_was_never_taken(tmp_path: Path) -> None:
    assert leases.holder(tmp_path / "lease") is None
    assert not (tmp_path / "lease").exists()


def test_a_second_taker_is_refused_with_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with held_by_child(path) as child:
        holder = leases.holder(path)
        assert holder is not None
        assert holder.pid == child.pid
        assert Lease.try_acquire(path, clock=CLOCK) is None
        with pytest.raises(Conflict, match=f"held by pid {child.pid} on {holder.host}"):
            Lease.acquire(path, clock=CLOCK, wait_s=0.06)
    assert leases.holder(path) is None


def test_asking_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.touch()
    assert leases.holder(path) is None
    assert path.read_bytes() == b""
    Lease.acquire(path, clock=CLOCK, wait_s=0).release()


def test_a_killed_holder_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with held_by_child(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        lease = Lease.acquire(path, clock=CLOCK, wait_s=0)
        holder = leases.holder(path)
        assert holder is not None
        assert holder.pid == os.getpid()
        lease.release()
        lease.release()


def test_a_waiting_taker_gets_it_when_it_is_freed(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    first = Lease.acquire(path, clock=CLOCK)

    class FreeingClock(SystemClock):
        asked = 0

        def monotonic(self) -> float:
            self.asked += 1
            if self.asked == 2:
                first.release()
            return super().monotonic()

    second = Lease.acquire(path, clock=FreeingClock(), wait_s=5)
    assert leases.holder(path) is not None
    second.release()


def test_a_deleted_file_gives_no_second_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    first = Lease.acquire(path, clock=CLOCK)
    path.unlink()
    second = Lease.acquire(path, clock=CLOCK)
    assert Lease.try_acquire(path, clock=CLOCK) is None
    first.release()
    assert Lease.try_acquire(path, clock=CLOCK) is None
    second.release()


def test_exec_does_not_inherit_it(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    lease = Lease.acquire(path, clock=CLOCK)
    sleeper = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        lease.release()
        assert leases.holder(path) is None
    finally:
        sleeper.kill()
        sleeper.wait(60)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"host": 1}', b"\xff"])
def test_an_unreadable_name_is_still_a_holder(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lease"
    lease = Lease.acquire(path, clock=CLOCK)
    path.write_bytes(content)
    assert str(leases.holder(path)) == "another process"
    lease.release()


def test_a_lease_that_a_full_disk_leaves_unsigned_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    path = tmp_path / "lease"
    with pytest.raises(Unavailable, match=f"cannot write {path}: No space left on device"):
        Lease.try_acquire(path, clock=SystemClock())
    assert leases.holder(path) is None
