"""The exec tap and transform with real programs (telegram-exec-agents §2, R35)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Refused, StepCall, WriteFailed
from pipo.connectors.exec import outcome
from pipo.connectors.exec.keeping import PROGRAMS_MAX
from pipo.connectors.exec.tap import ExecTap
from pipo.connectors.exec.transform import ExecTransform
from pipo.errors import InvalidState
from pipo.home import Home
from tests.contract.connectors.contract import context
from tests.programs import lives, noted
from tests.stack import wait_for

Run = Callable[..., Coroutine[Any, Any, Any]]
# A group whose members take no notice of SIGTERM; each notes its pid.
STUBBORN = "trap '' TERM; echo $$ >> pids; sh -c 'echo $$ >> pids; exec sleep 600' & wait"


@pytest.fixture
async def step(tmp_path: Path) -> AsyncIterator[ExecTransform]:
    made = ExecTransform(context(tmp_path, mask=lambda text: text.replace("s3cret", "***")))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def run(step: ExecTransform, tmp_path: Path) -> Run:
    async def running(command: str, *args: Any, **settings: Any) -> Any:
        return await step.run(call(tmp_path, command, *args, **settings))

    return running


def call(folder: Path, command: str, *args: Any, **settings: Any) -> StepCall:
    made = {"command": command, "args": list(args), "cwd": str(folder), **settings}
    return StepCall("p1", "run", {"n": 1}, {}, made)


async def pids_of(path: Path, count: int) -> list[int]:
    found = await asyncio.to_thread(lambda: wait_for(lambda: noted(path, count), deadline_s=60))
    assert all(map(lives, found))
    return found


async def gone(*pids: int) -> None:
    await asyncio.to_thread(
        lambda: wait_for(lambda: not any(map(lives, pids)), deadline_s=30, what=f"{pids} end")
    )


# ── what it is given ─────────────────────────────────────────────────────────


async def test_no_shell_reads_an_argument(run: Run) -> None:
    words = ["$(id)", "*", "'a' \"b\"", "a b", "", "--", "`x`", "é\n"]
    made = await run(
        sys.executable, "-c", "import json,sys; print(json.dumps(sys.argv[1:]))", *words,
        result="json",
    )  # fmt: skip
    assert made == words


async def test_a_program_beside_the_file_and_its_name(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "say.sh"
    script.write_text('#!/bin/sh\necho "$0"\n')
    script.chmod(0o755)
    assert await run(str(script), result="text") == f"{script}\n"
    assert await run("sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline", result="text") == (
        "sh -c tr '\\0' ' ' < /proc/$$/cmdline "
    )


async def test_it_runs_in_its_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert await run("pwd", cwd=str(tmp_path / "below"), result="text") == f"{tmp_path}/below\n"
    with pytest.raises(WriteFailed, match=r"`cwd` /nowhere is no folder"):
        await run("pwd", cwd="/nowhere")


async def test_variables_stand_beside_the_runners_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"PIPO_TRY": "a b$c", "PWD_": "x"}
    text = await run("env", env=given, result="text")
    assert {"PIPO_TRY=a b$c", "PWD_=x", f"PATH={os.environ['PATH']}"} <= set(text.splitlines())
    (tmp_path / "own").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "own").chmod(0o755)
    assert await run("own", env={"PATH": str(tmp_path)}, result="text") == "mine\n"


async def test_it_reads_its_input_and_need_not(run: Run) -> None:
    assert await run("cat", stdin={"a": "é"}, result="json") == {"a": "é"}
    assert await run("cat", result="text") == ""
    large = "x" * 5_000_000
    assert await run("true", stdin=large) == {
        "exit_code": 0, "stdout": "", "stderr": "", "files": [],
        "duration_ms": pytest.approx(0, abs=60_000),
    }  # fmt: skip
    assert await run("wc", "-c", stdin=large, result="text") == "5000000\n"


async def test_it_has_nothing_of_the_runner_but_its_three_streams(run: Run) -> None:
    """No descriptor, no blocked or ignored signal, a session and a group of its own."""
    look = (
        "import json,os;"
        "line=lambda name: next(l.split()[1] for l in open('/proc/self/status') if l.startswith(name));"
        "print(json.dumps([sorted(map(int,os.listdir('/proc/self/fd')))[:-1], line('SigBlk'),"
        " os.getpgid(0)==os.getpid()==os.getsid(0), os.isatty(0)]))"
    )
    fds, blocked, leads, terminal = await run(sys.executable, "-c", look, result="json")
    assert (fds, int(blocked, 16), leads, terminal) == ([0, 1, 2], 0, True, False)
    status = await run("grep", "SigIgn", "/proc/self/status", result="text")
    # 32 and 33 are the C library's own.
    assert int(status.split()[1], 16) & 0x7FFF_FFFF == 0


# ── what it gives ────────────────────────────────────────────────────────────


async def test_everything_about_a_run(run: Run) -> None:
    made = await run("sh", "-c", "echo out; echo err >&2; exit 3", success=[0, 3])
    assert made.pop("duration_ms") >= 0
    assert made == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n", "files": []}


async def test_other_codes_fail_with_the_end_of_what_it_said(run: Run) -> None:
    with pytest.raises(WriteFailed) as caught:
        await run("sh", "-c", "echo out; echo no s3cret >&2; exit 4", success=[3])
    assert caught.value.message == "sh exited with code 4: no ***"
    with pytest.raises(WriteFailed, match=r"^sh was ended by SIGTERM$"):
        await run("sh", "-c", "kill -TERM $$")


@pytest.mark.parametrize("result", ["info", "text", "json"])
async def test_what_it_prints_is_masked(run: Run, result: str) -> None:
    made = await run("printf", '{"k":"s3cret"}', result=result)
    assert "s3cret" not in json.dumps(made)
    assert "***" in json.dumps(made)


async def test_one_that_prints_without_end_costs_no_memory(run: Run) -> None:
    printing = "yes 0123456789abcde | head -c 8000000; yes x | head -c 3000000 >&2"
    made = await run("sh", "-c", printing)
    assert len(made["stdout"]) == len(made["stderr"]) == outcome.INFO_BYTES
    with pytest.raises(Refused, match="printed 8000000 bytes, more than the 1 MB"):
        await run("sh", "-c", printing, result="text")


async def test_its_files(run: Run, tmp_path: Path) -> None:
    wanted = [str(tmp_path / "a/b/one.txt"), str(tmp_path / "two.txt")]
    made = await run("sh", "-c", "echo 1 > a/b/one.txt; echo 2 > two.txt", outputs=wanted)
    assert made["files"] == wanted
    (tmp_path / "two.txt").unlink()
    with pytest.raises(WriteFailed, match=rf"true did not make {tmp_path}/two.txt"):
        await run("true", outputs=wanted)
    with pytest.raises(WriteFailed, match=r"one\.txt: File exists"):
        await run("true", outputs=[str(tmp_path / "a/b/one.txt/c/d")])


async def test_a_tap_ignores_what_is_printed_and_not_how_it_ends(tmp_path: Path) -> None:
    tap = ExecTap(context(tmp_path))
    await tap.open()
    printing = call(tmp_path, "sh", "-c", "yes | head -c 3000000; echo {", result="json")
    assert await tap.run(printing) is None  # type: ignore[func-returns-value]
    with pytest.raises(WriteFailed, match="exited with code 1"):
        await tap.run(call(tmp_path, "false"))
    with pytest.raises(WriteFailed, match="did not make"):
        await tap.run(call(tmp_path, "true", outputs=[str(tmp_path / "none")]))
    await tap.close()
    await tap.close()


# ── programs that are none ───────────────────────────────────────────────────


def no_program(folder: Path) -> dict[str, str]:
    (folder / "plain").write_text("echo hi\n")
    (folder / "formless").write_text("echo hi\n")
    (folder / "formless").chmod(0o755)
    (folder / "lost").write_text("#!/no/such/shell\n")
    (folder / "lost").chmod(0o755)
    return {
        "no-such-program": "'no-such-program' is not installed or not on PATH",
        str(folder / "none"): f"there is no program {folder}/none: it is not installed there",
        str(folder): f"there is no program {folder}",
        str(folder / "plain"): "it may not be executed",
        str(folder / "formless"): "did not start: .*/formless: Exec format error",
        str(folder / "lost"): "did not start: .*/lost: No such file or directory",
    }


async def test_what_is_no_program_fails_its_packet(run: Run, tmp_path: Path) -> None:
    for command, told in no_program(tmp_path).items():
        with pytest.raises(WriteFailed, match=told):
            await run(command)
    with pytest.raises(WriteFailed, match="Argument list too long") as caught:
        await run("true", "x" * 3_000_000)
    assert "`stdin`" in caught.value.hint
    assert await run("echo", result="text") == "\n"


async def test_a_start_needs_the_programs_that_are_written_out(
    step: ExecTransform, tmp_path: Path
) -> None:
    for command, told in list(no_program(tmp_path).items())[:4]:
        with pytest.raises(InvalidState, match=told):
            step.require({"command": command})
    with pytest.raises(InvalidState):
        step.require({"command": "./none"})
    step.require({"command": "./formless"})
    step.require({"command": "${data.tool}"})
    step.require({"command": "none", "env": {"PATH": "${data.path}"}})
    step.require({"command": "formless", "env": {"PATH": str(tmp_path)}})


def test_a_secret_in_a_command_line_is_warned_of(tmp_path: Path) -> None:
    """R41: what a program is given by `env` and `stdin` is not seen by others."""
    lines: list[Any] = []
    made = context(tmp_path)
    object.__setattr__(made, "log", lambda *line, **more: lines.append((line, more["action"])))
    step = ExecTransform(made)
    step.require({"command": "true", "env": {"K": "${secrets.k}"}, "stdin": "${secrets.k}"})
    assert lines == []
    step.require({"command": "true", "args": ["-k", "x${secrets.k}"]})
    ((line, action),) = lines
    assert line[0] == "warn"
    assert action == "secret_in_command_line"


# ── ends ─────────────────────────────────────────────────────────────────────


async def test_a_timeout_ends_the_whole_group(run: Run, tmp_path: Path) -> None:
    for timeout in ("1s", "5s", "30s"):
        with pytest.raises(WriteFailed, match=f"did not end within its timeout of {timeout}"):
            await run("sh", "-c", STUBBORN, timeout=timeout)
        # On a busy machine the group may not have been whole in time.
        if pids := noted(tmp_path / "pids", 2):
            break
    assert pids
    await gone(*pids)


async def test_one_that_ends_on_sigterm_is_not_waited_for(run: Run) -> None:
    for timeout in ("200ms", "5s", "30s"):
        ends = "trap 'echo saw it; exit 0' TERM; echo ready; sleep 600 & wait"
        with pytest.raises(WriteFailed, match=f"timeout of {timeout}") as caught:
            await run("sh", "-c", ends, timeout=timeout)
        if "ready" in caught.value.message:
            break
    assert caught.value.message.endswith("with its process group: ready saw it")


async def test_what_a_program_leaves_in_its_group_ends_with_it(run: Run, tmp_path: Path) -> None:
    leaving = "sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 600' & read _ < fifo; echo done"
    os.mkfifo(tmp_path / "fifo")
    task = asyncio.create_task(run("sh", "-c", leaving, result="text"))
    pids = await pids_of(tmp_path / "pids", 1)
    await asyncio.to_thread((tmp_path / "fifo").write_text, "go\n")
    assert await task == "done\n"
    await gone(*pids)


async def test_a_daemon_that_keeps_the_streams_holds_nobody_up(run: Run, tmp_path: Path) -> None:
    daemon = (
        "setsid sh -c 'echo $$ >> pids; exec sleep 600' & while [ ! -s pids ]; do :; done; echo up"
    )
    assert await run("sh", "-c", daemon, result="text") == "up\n"
    (pid,) = await pids_of(tmp_path / "pids", 1)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)


async def test_one_that_is_given_up_is_ended(run: Run, tmp_path: Path) -> None:
    task = asyncio.create_task(run("sh", "-c", STUBBORN))
    pids = await pids_of(tmp_path / "pids", 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(*pids)
    assert await run("echo", "on", result="text") == "on\n"


async def test_many_run_at_once(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    waiting = "echo $$ >> pids; read _ < gate; echo $1"
    tasks = [
        asyncio.create_task(run("sh", "-c", waiting, "sh", n, result="text")) for n in range(12)
    ]
    await pids_of(tmp_path / "pids", 12)
    # Open while they read: none finds the pipe without a writer.
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    os.write(gate, b"go\n" * 12)
    assert await asyncio.gather(*tasks) == [f"{n}\n" for n in range(12)]
    os.close(gate)


async def test_no_more_run_at_once_than_there_are_descriptors_for(run: Run, tmp_path: Path) -> None:
    count = ["-c", "echo x >> began; read _ < gate; wc -l < began"]
    os.mkfifo(tmp_path / "gate")
    tasks = [asyncio.create_task(run("sh", *count, result="json")) for _ in range(PROGRAMS_MAX + 6)]
    began = tmp_path / "began"
    full = 2 * PROGRAMS_MAX
    await asyncio.to_thread(
        lambda: wait_for(lambda: began.exists() and began.stat().st_size == full, deadline_s=60)
    )
    assert not any(task.done() for task in tasks)
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    os.write(gate, b"go\n" * PROGRAMS_MAX)
    await asyncio.to_thread(
        lambda: wait_for(lambda: began.stat().st_size == full + 12, deadline_s=60)
    )
    os.write(gate, b"go\n" * 6)
    assert min(await asyncio.gather(*tasks)) >= PROGRAMS_MAX
    os.close(gate)


async def test_no_zombies_are_left(step: ExecTransform, run: Run) -> None:
    """R35: 200 runs that leave background children."""
    for _ in range(20):
        await asyncio.gather(*(run("sh", "-c", "sleep 600 & exit 0") for _ in range(10)))
    keeper = step._runs.keeper_pid
    children = Path(f"/proc/{keeper}/task/{keeper}/children")
    await asyncio.to_thread(lambda: wait_for(lambda: not children.read_text().strip()))


async def test_a_keeper_that_dies_fails_its_runs_and_is_replaced(
    step: ExecTransform, run: Run, tmp_path: Path
) -> None:
    task = asyncio.create_task(run("sh", "-c", STUBBORN))
    pids = await pids_of(tmp_path / "pids", 2)
    os.kill(step._runs.keeper_pid, signal.SIGKILL)
    with pytest.raises(WriteFailed, match="the process that keeps the programs"):
        await task
    await gone(*pids)
    assert await run("echo", "on", result="text") == "on\n"


async def test_nothing_runs_behind_a_close(step: ExecTransform, run: Run, tmp_path: Path) -> None:
    task = asyncio.create_task(run("sh", "-c", STUBBORN))
    pids = await pids_of(tmp_path / "pids", 2)
    keeper = step._runs.keeper_pid
    await step.close()
    assert not any(map(lives, [keeper, *pids]))
    task.cancel()


HOLDING = """
import asyncio, sys
from pathlib import Path
from pipo.clock import SystemClock
from pipo.connectors.contract import Context, StepCall
from pipo.connectors.exec.tap import ExecTap
from pipo.home import Home

async def main():
    folder, home, program = Path(sys.argv[1]), Home(Path(sys.argv[2])), sys.argv[3]
    tap = ExecTap(Context("p", folder, SystemClock(), lambda *a, **k: None, home=home))
    await tap.open()
    settings = {"command": "sh", "args": ["-c", program], "cwd": str(folder)}
    await tap.run(StepCall("u", "n", {}, {}, settings))

asyncio.run(main())
"""


async def test_a_killed_pipeline_leaves_no_program_and_the_next_one_begins_behind_it(
    tmp_path: Path,
) -> None:
    """SIGKILL of the process that runs the step; its programs ignore SIGTERM."""
    home = Home(tmp_path / "home")
    home.pipeline("p").ensure()
    words = [sys.executable, "-c", HOLDING, str(tmp_path), str(home.root), STUBBORN]
    process = await asyncio.create_subprocess_exec(*words)
    pids = await pids_of(tmp_path / "pids", 2)
    process.kill()
    await process.wait()
    second = ExecTap(context(tmp_path, home=home))
    await second.open()
    assert not any(map(lives, pids))
    # Steps of other versions and roles share what it holds.
    third = ExecTransform(context(tmp_path, home=home))
    await third.open()
    assert await third.run(call(tmp_path, "echo", "on", result="text")) == "on\n"
    await second.close()
    await third.close()
