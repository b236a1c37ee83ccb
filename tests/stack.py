"""A real embedded stack for tests: `pipo run` in a home and a workspace of its own."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
PIPO = [sys.executable, "-m", "pipo_cli.main"]
# For a child that needs nothing but the standard library: up in half the time.
BARE_PYTHON = [sys.executable, "-I", "-S"]


def wait_for(
    condition: Callable[[], T | None],
    *,
    deadline_s: float = 60.0,
    what: str | Callable[[], str] = "",
) -> T:
    """The first true value of `condition`, asked until the deadline; `what` says what failed then.

    Asked less and less often: each time costs the stack under test some of its processor time.
    """
    end = time.monotonic() + deadline_s
    pause_s = 0.01
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {deadline_s} s: {told or condition}")
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 1.3)


async def soon(condition: Callable[[], T | None], deadline_s: float = 60.0) -> T:
    """The first true value of a condition that a thread or another process brings about.

    The loop of the test turns meanwhile. Raises: TimeoutError, at the deadline.
    """
    async with asyncio.timeout(deadline_s):
        while not (value := condition()):  # noqa: ASYNC110 - the loop is not told of it
            await asyncio.sleep(0.002)
    return value


# Below what the kernel gives to outgoing connections: no client takes a port we chose.
PORTS = range(12_000, 32_000)
# One byte of this file for each port; a lock on it is a test's for as long as its process lives,
# so that no other test takes what was just seen free, or what a stack comes back to after a kill.
_LOCKS = os.open(
    Path(tempfile.gettempdir()) / f"pipo-test-ports.{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600
)
# A process's own locks never refuse it.
_OURS: set[int] = set()


def free_ports(count: int = 2) -> int:
    """A port p with p … p + count - 1 free on 127.0.0.1, and this process's until it ends."""
    for _ in range(1000):
        port = secrets.choice(PORTS)
        if reserve(port, count):
            return port
    raise AssertionError("no free ports")


def reserve(port: int, count: int = 1) -> bool:
    """Whether `count` ports from this one on are free, and no other test's; then they are ours."""
    ports = range(port, port + count)
    if not _OURS.isdisjoint(ports):
        return False
    try:
        fcntl.lockf(_LOCKS, fcntl.LOCK_EX | fcntl.LOCK_NB, count, port)
    except OSError:
        return False
    if not all(_is_free(port) for port in ports):
        fcntl.lockf(_LOCKS, fcntl.LOCK_UN, count, port)
        return False
    _OURS.update(ports)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Stack:
    """One `pipo run` with its home, workspace and port."""

    def __init__(
        self, folder: Path, *, env: Mapping[str, str] | None = None, config: str = ""
    ) -> None:
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        self.workspace.mkdir(parents=True, exist_ok=True)
        if config:
            self.home.mkdir(parents=True, exist_ok=True)
            (self.home / "config.yaml").write_text(config)
        self.port = free_ports()
        self.env = {**os.environ, "PIPO_HOME": str(self.home), **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self._out = folder / "run.log"

    # ── life ─────────────────────────────────────────────────────────────────

    def write(self, name: str, text: str) -> Path:
        """A pipeline file in the workspace."""
        path = self.workspace / name
        path.write_text(text)
        return path

    def start(self, *paths: Path, deadline_s: float = 180.0) -> Stack:
        """Starts the stack and waits until every pipeline serves."""
        given = list(paths) or [self.workspace]
        wanted = sum(len(list(p.glob("*.pipo"))) if p.is_dir() else 1 for p in given)
        command = [*PIPO, "run", "--listen", str(self.port), *map(str, given)]
        with self._out.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                cwd=self.workspace,
                env=self.env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        wait_for(
            lambda: self._serves(wanted), deadline_s=deadline_s, what=f"it serves; see {self._out}"
        )
        return self

    def _serves(self, wanted: int) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"pipo run ended:\n{self.output()}")
        try:
            found = self.get("/api/pipelines")["pipelines"]
        except (OSError, ValueError):
            return False
        return [one["state"] for one in found] == ["running"] * wanted

    def stop(self, *, deadline_s: float = 180.0) -> int:
        """Ctrl-C: drains and ends; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"no end within {deadline_s} s:\n{self.output()}") from None

    def kill_all(self) -> None:
        """Ends everything this stack started, by pid, also what has not registered yet."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        for pid in self.pids():
            _kill(pid)

        def gone() -> bool:
            left = self._at_home()
            for pid in left:
                _kill(pid)
            return not left

        wait_for(gone)

    def output(self) -> str:
        """What `pipo run` printed, and the ends of the logs."""
        parts = [self._out.read_text(errors="replace")]
        for log in sorted(self.home.glob("logs/**/*.log")):
            parts.append(
                f"── {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            )
        return "\n".join(parts)

    # ── who runs ─────────────────────────────────────────────────────────────

    def pids(self) -> list[int]:
        """Every process of this home that its registry names and that lives."""
        found = []
        for path in [*self.home.glob("run/*.json"), *self.home.glob("run/services/*.json")]:
            try:
                found.append(int(json.loads(path.read_text())["pid"]))
            except (OSError, ValueError, KeyError):
                continue
        return [pid for pid in found if _alive(pid)]

    def _at_home(self) -> list[int]:
        """Every live process that was started for this home: the command line or variable says so.

        One that is being started has the variable already, and not yet a command line of its own.
        """
        home = os.fsencode(self.home)
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                words += (folder / "environ").read_bytes().split(b"\0")
                if home in words or b"PIPO_HOME=" + home in words:
                    found.append(int(folder.name))
        return found

    def pipeline_pid(self, name: str) -> int | None:
        """The pid that the registry names for a pipeline."""
        try:
            return int(json.loads((self.home / "run" / f"{name}.json").read_text())["pid"])
        except (OSError, ValueError):
            return None

    def service_pid(self, kind: str) -> int | None:
        """The pid of the one service of a kind."""
        for path in self.home.glob(f"run/services/{kind}-*.json"):
            try:
                pid = int(json.loads(path.read_text())["pid"])
            except (OSError, ValueError):
                continue
            if _alive(pid):
                return pid
        return None

    # ── talking ──────────────────────────────────────────────────────────────

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        with urllib.request.urlopen(self.url(path), timeout=30) as answer:
            return json.loads(answer.read())

    def request(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of any request; an error status is an answer."""
        asked = urllib.request.Request(
            self.url(path),
            data=body,
            method=method,
            headers={"content-type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(asked, timeout=timeout_s) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def pipo(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs the command line against this stack."""
        return subprocess.run(
            [*PIPO, *words],
            cwd=self.workspace,
            env={**self.env, "PIPO_URL": f"http://127.0.0.1:{self.port}"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def stats(self, name: str) -> dict[str, Any]:
        """The pipeline's counts; empty while it cannot be asked."""
        try:
            found: dict[str, Any] = self.get(f"/api/pipelines/{name}")["stats"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return found

    def settle(self, name: str, *, deadline_s: float = 60.0) -> dict[str, Any]:
        """The counts once nothing is pending."""
        return wait_for(
            lambda: s if (s := self.stats(name)) and s["pending"] == 0 else None,
            deadline_s=deadline_s,
            what=lambda: f"{name} settles; now {self.stats(name)}",
        )


def query(database: Path, sql: str) -> list[list[Any]]:
    """Rows of a live database, looked at from a child process (design §5)."""
    (rows,) = query_each([(database, sql)])
    return rows


def query_each(asked: Sequence[tuple[Path, str]]) -> list[list[list[Any]]]:
    """The rows of each database and query, all from one child process."""
    program = (
        "import json,sqlite3,sys;"
        "ask=lambda d,q: sqlite3.connect(f'file:{d}?mode=ro',uri=True,timeout=60)"
        ".execute(q).fetchall();"
        "print(json.dumps([ask(d,q) for d,q in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [*BARE_PYTHON, "-c", program],
        input=json.dumps([(str(database), sql) for database, sql in asked]),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    found: list[list[list[Any]]] = json.loads(done.stdout)
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def journal_of(home: Path, name: str) -> Path:
    return home / "pipelines" / name / "journal.db"


def lines(path: Path) -> Sequence[dict[str, Any]]:
    """The records of a jsonl file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
