"""Two hundred idle pipelines in one home, beside two hundred bare gRPC servers.

    python -m tests.bench.many_pipelines [COUNT]

How long until all serve, what each holds of memory (PSS: shared pages count by their share), what
all of them and the services around them take of a core while nothing happens, and how long the
gateway takes to tell the state of all. Processor time is counted where wall time says more about
the machine's other work than about Pipo; the load average stands beside.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

from pipo.home import Home, desired
from tests.several_hosts import SeveralHosts, descendants
from tests.stack import ROOT, wait_for

COUNT = 200
WATCHED_S = 30.0
ANSWERS = 15
AIMS = {"start": 60.0, "pss": 20.0, "cpu": 10.0, "status": 300.0}
TEXT = """pipo: 1
name: {name}
input: {{ via: http, with: {{ path: /in }}, validate: ["exists(data.email)"] }}
nodes:
  clean: {{ from: input, transform: map, with: {{ data: {{ email: "${{lower(data.email)}}" }} }} }}
output: {{ from: clean, to: sqlite, with: {{ path: ./{name}.db, table: t, create: true }} }}
delivered: {{ check: record_exists, with: {{ where: {{ packet_id: "${{meta.packet_id}}" }} }} }}
"""


def main(count: int = COUNT) -> int:
    """Prints the report; 0."""
    report(count)
    return 0


def report(count: int = COUNT) -> None:
    """The lines of the report."""
    bare = _bare(count)
    with tempfile.TemporaryDirectory(prefix="pipo-bench-") as folder:
        hosts = SeveralHosts(Path(folder))
        try:
            _pipelines(hosts, count, bare)
        finally:
            hosts.kill_all()


def _bare(count: int) -> float:
    """What bare servers take of a core, percent."""
    servers = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bare_servers", str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert servers.stdin is not None
    assert servers.stdout is not None
    try:
        pids = [*map(int, servers.stdout.readline().split())]
        percent = _percent([*pids, servers.pid])
        print(
            f"{count} bare gRPC servers, idle                            {percent:9.2f} % of a core"
            f"   {_mb(pids):.1f} MB (PSS) each   (load {_load()})"
        )
    finally:
        servers.stdin.close()
        servers.wait(60)
    return percent


def _pipelines(hosts: SeveralHosts, count: int, bare: float) -> None:
    names = [f"idle-{number:03}" for number in range(count)]
    home = Home(hosts.home)
    home.ensure()
    for name in names:
        file = hosts.write(f"{name}.pipo", TEXT.format(name=name))
        desired.write(home.pipeline(name), desired.Desired("running", str(file), runner="one"))
    began, used = time.monotonic(), _machine_s()
    hosts.serve("one")
    wait_for(lambda: _serving(hosts, names) == count, deadline_s=600.0, what=hosts.output)
    took_s, used_s = time.monotonic() - began, _machine_s() - used
    print(
        f"{count} idle pipelines: from nothing until all serve         {took_s:9.1f} s"
        f"   (aim < {AIMS['start']:.0f} s; the machine computed {used_s:.1f} s; load {_load()})"
    )
    pids = [pid for name in names if (pid := hosts.pipeline_pid(name)) is not None]
    _status(hosts, pids)
    services: dict[str, Sequence[int | None]] = {
        "runner": [hosts.runner("one").pid, *_forkservers(hosts, pids)],
        "gateway": [hosts.service_pid("gateway")],
        "checker": [hosts.service_pid("checker")],
    }
    _settle(pids)
    before = _each_s({"pipelines": pids, **services})
    time.sleep(WATCHED_S)
    after = _each_s({"pipelines": pids, **services})
    shares = {kind: 100.0 * (after[kind] - before[kind]) / WATCHED_S for kind in after}
    whole = sum(shares.values())
    told = ", ".join(f"{kind} {share:.2f}" for kind, share in shares.items())
    print(
        f"{count} idle pipelines and their services                  {whole:9.2f} % of a core"
        f"   (aim < {AIMS['cpu']:.0f} %; {whole / bare:.2f} × bare servers; {told}; load {_load()})"
    )
    print(
        f"an idle pipeline among {count}                             {_mb(pids):9.1f} MB (PSS)"
        f"   (aim < {AIMS['pss']:.0f} MB; "
        + ", ".join(f"{kind} {_mb(of) * len(of):.0f} MB" for kind, of in services.items())
        + ")"
    )


def _serving(hosts: SeveralHosts, names: Iterable[str]) -> int:
    """How many pipelines have told where they serve; asks nobody for it."""
    count = 0
    for name in names:
        with suppress(OSError, ValueError, KeyError):
            entry = json.loads((hosts.home / "run" / f"{name}.json").read_text())
            count += bool(entry["address"]) and entry["state"] == "running"
    return count


def _status(hosts: SeveralHosts, pids: Sequence[int | None]) -> None:
    """How long `GET /api/pipelines` takes, over one connection; the first one meets everybody."""
    count = len(pids)
    connection = HTTPConnection("127.0.0.1", hosts.port, timeout=60)
    gateway = hosts.service_pid("gateway")
    taken, states = [], set()
    for number in range(ANSWERS + 1):
        if number == 1:
            used = _each_s({"gateway": [gateway], "pipelines": pids})
        began = time.perf_counter()
        connection.request("GET", "/api/pipelines")
        answer = json.loads(connection.getresponse().read())
        taken.append(1000.0 * (time.perf_counter() - began))
        states = {one["state"] for one in answer["pipelines"]}
        assert len(answer["pipelines"]) == count
    after = _each_s({"gateway": [gateway], "pipelines": pids})
    own_ms, their_ms = (1000.0 * (after[kind] - used[kind]) / ANSWERS for kind in after)
    connection.close()
    first, *rest = taken
    print(
        f"GET /api/pipelines of {count}, median of {ANSWERS}                  {statistics.median(rest):9.1f} ms"
        f"   (aim < {AIMS['status']:.0f} ms; quickest {min(rest):.0f}, first {first:.0f}; the gateway "
        f"computed {own_ms:.0f} ms, the pipelines {their_ms:.0f} ms; states {', '.join(sorted(states))}; load {_load()})"
    )


def _settle(pids: Sequence[int]) -> None:
    """Returns once what a start left to do is done, or after a minute."""
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        before = sum(map(_cpu_s, pids))
        time.sleep(5.0)
        if sum(map(_cpu_s, pids)) - before < 1.0:
            return


def _forkservers(hosts: SeveralHosts, pipelines: Sequence[int]) -> list[int]:
    return [pid for pid in descendants(hosts.runner("one").pid) if pid not in pipelines]


def _percent(pids: Sequence[int], seconds: float = WATCHED_S) -> float:
    before = sum(map(_cpu_s, pids))
    time.sleep(seconds)
    return 100.0 * (sum(map(_cpu_s, pids)) - before) / seconds


def _each_s(kinds: Mapping[str, Sequence[int | None]]) -> dict[str, float]:
    return {kind: sum(map(_cpu_s, pids)) for kind, pids in kinds.items()}


def _cpu_s(pid: int | None) -> float:
    """Processor time of all threads, seconds; to the nanosecond, which /proc/stat rounds to 10 ms."""
    if pid is None:
        return 0.0
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _machine_s() -> float:
    """What all processors computed since the machine's start, seconds."""
    fields = [*map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])]
    return (sum(fields[:3]) + sum(fields[5:7])) / os.sysconf("SC_CLK_TCK")


def _mb(pids: Sequence[int | None]) -> float:
    """Proportional set size, MB, on average."""

    def one(pid: int | None) -> int:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))

    return statistics.fmean(map(one, pids)) / 1024


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
