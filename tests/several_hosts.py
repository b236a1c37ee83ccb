"""Several runner hosts on one home: gateway, runners and checkers as processes of their own.

What `docker-compose up --scale runner=2` is, without containers: every service is started by its
own command, with `--home` and `--id`. For tests of placement, failover and chains across hosts.

    hosts = SeveralHosts(tmp_path)
    hosts.write("signups.pipo", TEXT)
    hosts.serve("a", "b")                  # a gateway, a checker, and these runner hosts
    hosts.begin("signups")                 # on the host that has the least to do
    hosts.host_of("signups")               # "a": who supervises it now
    hosts.runner("a").kill()               # the host alone: its pipelines live on
    hosts.runner("a").kill_with_pipelines()  # as when its container dies
    hosts.runner("b").freeze(); hosts.runner("b").thaw()
    hosts.kill_all()                       # in any case, at the end

All else is `tests.stack.Stack`'s: `get`, `request`, `stats`, `settle`, `pipo`, `pipeline_pid`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.stack import Stack, wait_for

MODULES = {
    "gateway": "pipo_gateway.main",
    "runner": "pipo_runner.host.main",
    "checker": "pipo_checker.main",
}


class Served:
    """One service process."""

    def __init__(self, kind: str, id: str, process: subprocess.Popen[bytes]) -> None:
        self.kind = kind
        self.id = id
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def freeze(self) -> None:
        """SIGSTOP to the service alone: it holds what it holds, and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the service alone."""
        self.process.kill()
        self.process.wait(60)

    def kill_with_pipelines(self) -> list[int]:
        """SIGKILL to a runner host and to all that it started; the pids."""
        family = descendants(self.pid)
        for pid in (self.pid, *family):
            signal_to(pid, signal.SIGKILL)
        self.process.wait(60)
        return family

    def stop(self) -> int:
        """SIGTERM, as `docker stop` sends it; the exit code."""
        self.process.terminate()
        return self.process.wait(120)


class SeveralHosts(Stack):
    """A home with one gateway and any number of runner hosts and checkers."""

    def __init__(
        self, folder: Path, *, env: Mapping[str, str] | None = None, config: str = ""
    ) -> None:
        super().__init__(folder, env=env, config=config)
        self._folder = folder
        self._served: dict[tuple[str, str], Served] = {}

    # ── services ─────────────────────────────────────────────────────────────

    def serve(self, *runners: str, checkers: Sequence[str] = ("eye",)) -> SeveralHosts:
        """Starts a gateway, these runner hosts and checkers; each serves on return."""
        self.add("gateway", "door", "--listen", str(self.port))
        for id in checkers:
            self.add("checker", id)
        for id in runners:
            self.add("runner", id, "--port", "0")
        wait_for(
            lambda: all(map(self._is_up, self._served.values())), deadline_s=180.0, what=self.output
        )
        return self

    def add(self, kind: str, id: str, *words: str) -> Served:
        """Starts one more service, or one of the same name anew; returns before it serves."""
        command = [sys.executable, "-m", MODULES[kind], "--home", str(self.home), "--id", id]
        if kind != "gateway":
            command += ["--http-port", "0"]
        with (self._folder / f"{kind}-{id}.out").open("ab") as out:
            process = subprocess.Popen(
                [*command, *words],
                cwd=self.workspace,
                env=self.env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        served = self._served[kind, id] = Served(kind, id, process)
        return served

    def add_runner(self, id: str) -> Served:
        """Starts one more runner host; it serves on return."""
        served = self.add("runner", id, "--port", "0")
        wait_for(lambda: self._is_up(served), deadline_s=180.0, what=self.output)
        return served

    def runner(self, id: str) -> Served:
        return self._served["runner", id]

    def _is_up(self, served: Served) -> bool:
        if served.process.poll() is not None:
            raise AssertionError(f"{served.kind} {served.id} ended:\n{self.output()}")
        file = self.home / "run" / "services" / f"{served.kind}-{served.id}.json"
        with suppress(OSError, ValueError, KeyError):
            entry = json.loads(file.read_text())
            return entry["pid"] == served.pid and bool(entry["address"] or entry["http_address"])
        return False

    # ── pipelines ────────────────────────────────────────────────────────────

    def begin(self, name: str) -> dict[str, Any]:
        """Starts `<name>.pipo` of the workspace through the gateway: its entry."""
        body = json.dumps({"file": str(self.workspace / f"{name}.pipo")}).encode()
        status, _, answer = self.request("/api/pipelines", body, timeout_s=120.0)
        assert status == 201, (status, answer, self.output())
        found: dict[str, Any] = json.loads(answer)
        return found

    def host_of(self, name: str) -> str | None:
        """The id of the runner host that holds the claim of a pipeline; None when none does."""
        held = claim_holder(self.home / "pipelines" / name / "claim")
        for served in self._served.values():
            if served.kind == "runner" and served.pid == held:
                return served.id
        return None

    def placed(self, *names: str) -> dict[str, str | None]:
        """`host_of` each."""
        return {name: self.host_of(name) for name in names}

    def freeze_pipeline(self, name: str) -> int:
        """SIGSTOP to the pipeline's process; its pid."""
        pid = self.pipeline_pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return pid

    # ── the end ──────────────────────────────────────────────────────────────

    def kill_all(self) -> None:
        for served in self._served.values():
            if served.process.poll() is None:
                served.process.kill()
                served.process.wait(60)
        super().kill_all()

    def output(self) -> str:
        """What each service printed last, and the ends of the pipelines' logs."""
        parts = []
        for file in [*sorted(self._folder.glob("*.out")), *sorted(self.home.glob("logs/*.log"))]:
            lines = file.read_text(errors="replace").splitlines()
            parts.append(f"── {file.name}\n" + "\n".join(lines[-30:]))
        return "\n".join(parts)


def claim_holder(file: Path) -> int | None:
    """The pid of who holds a lease file of a home, or None."""
    from pipo.home import leases

    holder = leases.holder(file)
    return None if holder is None else holder.pid


def descendants(pid: int) -> list[int]:
    """Every living child of a process, and theirs."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def signal_to(pid: int, number: signal.Signals) -> None:
    """Sends a signal; nothing to a process that is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
