"""A background stack as a person has one: brought up by `pipo start`, asked by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.stack import PIPO, Stack


class Background(Stack):
    """A home whose stack comes up with the first `pipo start`; its gateway is found by the home."""

    def __init__(
        self, folder: Path, *, env: Mapping[str, str] | None = None, config: str = ""
    ) -> None:
        super().__init__(folder, env=env, config=config)
        self.env |= {
            "PIPO_LISTEN": str(self.port),
            "PIPO_PLAIN": "1",
            "PATH": f"{Path(sys.executable).parent}:{self.env['PATH']}",
        }
        self.env.pop("PIPO_URL", None)

    def pipo(self, *words: str, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        return self._run([*PIPO, *words], timeout_s)

    def shell(self, text: str, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        """Runs a line that a person types in the workspace."""
        return self._run(["bash", "-euo", "pipefail", "-c", text], timeout_s)

    def told(self, *words: str) -> dict[str, Any]:
        """What a command that succeeds answers with `--json`."""
        done = self.pipo(*words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def entry(self, name: str) -> dict[str, Any]:
        """A pipeline's file in the registry."""
        found: dict[str, Any] = json.loads((self.home / "run" / f"{name}.json").read_text())
        return found

    def supervisors(self) -> list[int]:
        """The processes that keep the services of this home; one while its stack is up."""
        wanted = [b"pipo_cli.engine_process", os.fsencode(self.home)]
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if all(word in words for word in wanted):
                    found.append(int(folder.name))
        return found

    def _run(self, command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.workspace,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )


@contextmanager
def in_background(
    folder: Path, *, env: Mapping[str, str] | None = None, config: str = ""
) -> Iterator[Background]:
    """A home without a stack yet; whatever runs in it is ended at the end."""
    made = Background(folder, env=env, config=config)
    try:
        yield made
    finally:
        made.kill_all()
