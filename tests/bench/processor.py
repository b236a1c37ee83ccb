"""The processor time of a process: what a shared machine says about a cost."""

from __future__ import annotations

import os
from pathlib import Path


def used_s(pid: int) -> float:
    """Seconds of the processor that a process has used since it began, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
