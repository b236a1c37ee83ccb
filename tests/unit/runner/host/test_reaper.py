"""PID 1 takes the ends of its orphans."""

import asyncio
import os
from typing import Any

from pipo_runner.host.reaper import Reaper


def orphan() -> int:
    return os.posix_spawn("/bin/true", ["true"], {})


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def test_as_pid_1_it_leaves_no_zombie(eventually: Any) -> None:
    seen = asyncio.Event()
    reaper = Reaper(seen.set, first=True)
    reaper.start()
    pid = orphan()
    await eventually(lambda: not is_there(pid))
    assert seen.is_set()
    reaper.stop()
    reaper.reap()


def test_elsewhere_it_takes_nobody_elses_end() -> None:
    reaper = Reaper(lambda: None, first=False)
    pid = orphan()
    reaper.reap()
    assert os.waitpid(pid, 0)[0] == pid
