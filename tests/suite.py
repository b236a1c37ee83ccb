"""Runs the tests in three parts: side by side what may be, beside it the containers, then the rest.

`python -m tests.suite` takes the words of pytest. All parts run, whatever the first one
finds; the exit status is that of the first part that failed, and the count of seed statements
is over all of them.
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
INTERRUPTED = {int(pytest.ExitCode.INTERRUPTED), -signal.SIGINT}
PARTS = {
    # The tests of a file stay together: many share one stack, and some look at what others left.
    "together": ["-n", str(WORKERS), "--dist", "loadfile"],
    # One image and one stack for all of them; they mostly wait for the Docker engine.
    "compose": [],
    "alone": [],
}


def main(words: list[str]) -> int:
    # Ctrl-C is for the runs in hand, which tidy up; a handler of ours is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    # Stacks are started by the hundred: their processes find their code compiled.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    coverage = SeedCoverage()
    with tempfile.TemporaryDirectory(prefix="pipo-tests-") as folder:
        log, aside = Path(folder) / "seeds.jsonl", Path(folder) / "compose.txt"
        log.touch()

        def command(part: str) -> list[str]:
            # Options of ours in one word, and the root by name: pytest looks for its settings
            # above every path that it thinks it sees.
            own = [f"--rootdir={ROOT}", f"--part={part}", f"--seed-log={log}", *PARTS[part]]
            return [sys.executable, "-m", "pytest", *own, *words]

        with aside.open("wb") as said:
            compose = subprocess.Popen(
                command("compose"), env=environment, stdout=said, stderr=said
            )
        codes = [subprocess.run(command("together"), env=environment).returncode]
        codes.append(compose.wait())
        print(aside.read_text(errors="replace"), end="", flush=True)
        if not INTERRUPTED.intersection(codes):
            codes.append(subprocess.run(command("alone"), env=environment).returncode)
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
