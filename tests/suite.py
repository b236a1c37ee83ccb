"""Runs the tests in two parts: side by side what may be, then the rest one by one.

`python -m tests.suite` takes the words of pytest. Both parts run, whatever the first one
finds; the exit status is that of the first part that failed, and the count of seed statements
is over both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.seed_coverage import SeedCoverage

ROOT = Path(__file__).resolve().parent.parent
# Most of the time goes in waits for processes: more workers than the two cores of CI.
WORKERS = 3
# The tests of a file stay together: many share one stack, and some look at what others left there.
PARTS = {
    "together": ["-n", str(WORKERS), "--dist", "loadfile"],
    "alone": [],
}


def main(words: list[str]) -> int:
    # Ctrl-C is for the run in hand, which tidies up; a handler of ours is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    # Stacks are started by the hundred: their processes find their code compiled.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    coverage = SeedCoverage()
    codes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="pipo-tests-") as folder:
        log = Path(folder) / "seeds.jsonl"
        log.touch()
        for part, how in PARTS.items():
            # Options of ours in one word, and the root by name: pytest looks for its settings
            # above every path that it thinks it sees.
            own = [f"--rootdir={ROOT}", f"--part={part}", f"--seed-log={log}", *how]
            command = [sys.executable, "-m", "pytest", *own, *words]
            codes.append(subprocess.run(command, env=environment).returncode)
            if codes[-1] in (pytest.ExitCode.INTERRUPTED, -signal.SIGINT):
                break
        coverage.add(log)
    for line in coverage.told():
        print(line)
    return verdict(codes)


def verdict(codes: list[int]) -> int:
    """The exit status of the whole: a part may have no tests, but not every part."""
    told = [code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED]
    return next((code for code in told if code), 0) if told else codes[0]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
