"""The service as a process: signals, the supervisor's pipe, kill -9, folders of others."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pipo.home import Home, desired, leases, registry, tokens
from pipo.home.registry import ServiceEntry
from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, runner_pb2, runner_pb2_grpc

pytestmark = pytest.mark.slow
TEXT = "pipo: 1\nname: p\ninput: {via: push}\noutput: {from: input, to: stdout}\n"


# The interpreter's own files may be closed to a stranger: imported first, it needs them no more.
AS_STRANGER = """
import os, sys, uvloop
from tests.unit.runner.host.fake_service import main
os.setgroups([])
os.setgid(5678)
os.setuid(1234)
main()
"""


@contextmanager
def runner(home: Home, *code: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    how = code or ("-m", "tests.unit.runner.host.fake_service")
    process = subprocess.Popen(
        [sys.executable, *how, str(home.root)],
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def served(home: Home, process: subprocess.Popen[str], eventually: Any) -> ServiceEntry:
    def mine() -> list[ServiceEntry]:
        assert process.poll() is None, process.stderr and process.stderr.read()
        return [e for e in registry.services(home, "runner") if e.pid == process.pid and e.address]

    await eventually(mine)
    return mine()[0]


async def start_p(home: Home, service: ServiceEntry) -> int:
    file = home.root / "p.pipo"
    file.write_text(TEXT)
    file.with_name("p.pipo.words").write_text("serve")
    channel = dial(service.address, tokens.internal_token(home))
    try:
        stub = runner_pb2_grpc.RunnerStub(channel)
        info = await stub.Start(pipo_pb2.StartRequest(target=str(file)))
        return int(info.pid)
    finally:
        await channel.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def signals_blocked(pid: int) -> int:
    """The mask of the main thread."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in lines if line.startswith("SigBlk")]
    return int(mask, 16)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_suspends(home: Home, eventually: Any, number: signal.Signals) -> None:
    with runner(home) as process:
        service = await served(home, process, eventually)
        url = f"http://{service.http_address}"
        assert '"ok":true' in await asyncio.to_thread(get, f"{url}/healthz")
        await start_p(home, service)
        assert 'pipo_runner_pipelines{state="running"} 1.0' in await asyncio.to_thread(
            get, f"{url}/metrics"
        )
        process.send_signal(number)
        code, said = ended(process)
    assert code == 0
    assert said.count("stopping  action=stopping") == 1
    assert said.count("stopped  action=stopped") == 1
    wish = desired.read(home.pipeline("p"))
    assert wish is not None
    assert wish.desired == "running"
    assert leases.holder(home.pipeline("p").lease) is None
    assert registry.entries(home) == []
    assert registry.services(home) == []


async def test_signals_that_were_blocked_for_pid_1_reach_its_children(
    home: Home, eventually: Any
) -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    with runner(home, preexec_fn=block) as process:
        pid = await start_p(home, await served(home, process, eventually))
        blocked = [signals_blocked(one) for one in (process.pid, pid)]
        process.terminate()
        assert ended(process)[0] == 0
    assert blocked == [0, 0]


async def test_after_a_kill_the_next_one_adopts_with_the_same_pid(
    home: Home, eventually: Any
) -> None:
    with runner(home) as process:
        pid = await start_p(home, await served(home, process, eventually))
        process.kill()
        ended(process)
    os.kill(pid, 0)
    with runner(home) as process:
        service = await served(home, process, eventually)
        channel = dial(service.address, tokens.internal_token(home))
        stub = runner_pb2_grpc.RunnerStub(channel)
        listed = await stub.Adopt(runner_pb2.AdoptRequest())
        await channel.close()
        # The fake one answers no call.
        assert [(one.name, one.pid, one.state) for one in listed.pipelines] == [
            ("p", pid, "unreachable")
        ]
        process.terminate()
        assert ended(process)[0] == 0
    os.kill(pid, signal.SIGTERM)


async def test_it_suspends_when_the_supervisor_is_gone(home: Home, eventually: Any) -> None:
    read, write = os.pipe()
    environ = os.environ | {"PIPO_PARENT_FD": str(read)}
    with runner(home, env=environ, pass_fds=[read]) as process:
        os.close(read)
        pid = await start_p(home, await served(home, process, eventually))
        os.close(write)
        assert ended(process)[0] == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_taken_name_is_refused(home: Home, eventually: Any) -> None:
    with runner(home) as first:
        await served(home, first, eventually)
        with runner(home) as second:
            code, said = ended(second)
    assert code == 1
    assert f"pid {first.pid}" in said
    assert "Traceback" not in said


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_a_folder_of_somebody_else_is_one_message(home: Home) -> None:
    folder = Path(os.path.realpath(home.root))
    for outer in list(folder.parents)[:-2]:
        with suppress(OSError):
            outer.chmod(outer.stat().st_mode | 0o055)
    folder.chmod(0o755)
    with runner(home, "-c", AS_STRANGER) as process:
        code, said = ended(process)
    assert code == 1
    assert f"cannot write {folder}" in said
    assert "1234:5678" in said
    assert "chown" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 3
