"""PID 1 takes the ends of its orphans."""

import os
from typing import Any

from pipo_runner.host.reaper import Reaper


def orphan() -> int:
    return os.posix_spawn("/bin/true", ["true"], {})


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def test_as_pid_1_it_leaves_no_zombie(eventually: Any) -> None:
    reaper = Reaper(first=True, every_s=0.001)
    reaper.stop()
    reaper.start()
    pid = orphan()
    await eventually(lambda: not is_there(pid))
    reaper.stop()


async def test_elsewhere_it_takes_nobody_elses_end() -> None:
    reaper = Reaper()
    reaper.start()
    reaper.stop()
