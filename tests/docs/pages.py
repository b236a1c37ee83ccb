"""The shell blocks of a page, and running them the way a reader would."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.stack import free_ports, wait_for

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PORT = "8787"
# Where a page runs a server of its own.
OTHER_PORT = re.compile(r"\b9000\b")
# A block that starts like this runs on while the next ones are tried.
RUNS_ON = re.compile(r"(make run|pipo run \S+)")
UP = "Ctrl-C drains and stops everything"
# What changes something is done once; what only looks is repeated until it succeeds.
CHANGES = re.compile(r"\b(curl|push|kill|start|stop|cat >)")
PACKET_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
PLACEHOLDER = "<packet_id>"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of shell commands."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, language: str = "sh") -> list[Block]:
    """The blocks of a page in one language, in order."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text[: found.start()].count("\n") + 1, found[2].strip())
        for found in _FENCE.finditer(text)
        if found[1] == language
    ]


class Reader:
    """Tries blocks one after the other, in one folder, with a home and a port of its own."""

    def __init__(self, folder: Path, home: Path, *, path: str = "") -> None:
        self.folder = folder
        self.port = str(free_ports())
        self.other_port = str(free_ports(1))
        self.environment = {
            **os.environ,
            "PIPO_HOME": str(home),
            "PIPO_LISTEN": self.port,
            "PIPO_PLAIN": "1",
            "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
        }
        self.last_id = ""
        self._running: subprocess.Popen[bytes] | None = None
        self._output = home.with_name("run.out")

    def try_block(self, block: Block) -> str:
        """What the block printed. A block that runs on is waited for until it is up."""
        if RUNS_ON.fullmatch(block.text):
            return self._start(block)
        text = self.with_own_ports(block.text).replace(PLACEHOLDER, self.last_id)
        printed = self._once(block, text)
        if ids := PACKET_ID.findall(printed):
            self.last_id = ids[-1]
        return printed

    def with_own_ports(self, text: str) -> str:
        """The text with free ports in place of those that the pages name."""
        return OTHER_PORT.sub(self.other_port, text.replace(f":{DEFAULT_PORT}", f":{self.port}"))

    def stop(self) -> str:
        """Ctrl-C at the terminal of what runs on; all that it printed."""
        process = self._running
        assert process is not None
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        finally:
            self.kill()
        return self._output.read_text()

    def kill(self) -> None:
        """Ends what runs on, if it still does."""
        if self._running is not None and self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait(60)
        self._running = None

    def _once(self, block: Block, text: str) -> str:
        deadline = time.monotonic() + (0 if CHANGES.search(text) else 60)
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() >= deadline:
                printed = self._output.read_text() if self._output.exists() else ""
                raise AssertionError(
                    f"{block}: exit {done.returncode}\n{text}\n{done.stdout}\n── runs on:\n{printed}"
                )
            time.sleep(0.5)

    def _start(self, block: Block) -> str:
        with self._output.open("wb") as output:
            self._running = process = subprocess.Popen(
                ["bash", "-c", f"exec {block.text}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

        def up() -> bool:
            printed = self._output.read_text()
            if process.poll() is not None:
                raise AssertionError(f"{block} ended with {process.returncode}:\n{printed}")
            return UP in printed

        wait_for(up, deadline_s=60, what=f"{block} is up")
        return self._output.read_text()


def checkout(folder: Path, venv: Path) -> Path:
    """A copy of what `make run` needs, with the installed environment of this test run.

    What a `make run` of this checkout has written into `examples/` stays behind.
    """
    names = ("Makefile", "requirements.lock", "pyproject.toml", "README.md")
    examples = folder / "examples"
    examples.mkdir()
    for found in [*(ROOT / name for name in names), *(ROOT / "examples").glob("*.pipo")]:
        shutil.copy2(found, folder / found.relative_to(ROOT))
    inside = folder / ".venv"
    inside.mkdir()
    (inside / "bin").symlink_to(venv / "bin")
    (inside / "installed.stamp").touch()
    return folder
