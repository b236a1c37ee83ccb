"""Functions in helpers: real processes, one call at a time, and what each misdeed costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pipo.functions.calling import FunctionFailed
from tests.stack import wait_for
from tests.unit.functions.rig import LIMIT_BYTES, Rig, code_of

pytestmark = pytest.mark.slow

MODULE = """
import asyncio, functools, logging, os, pipo, signal, subprocess, sys, threading
from . import prices
from .kinds.people import NAME

calls = 0

def shape(data, meta):
    return {**data, "tax": prices.TAX, "packet": meta["packet_id"], "kind": NAME}

def count(data):
    global calls
    calls += 1
    return [os.getpid(), calls]

async def waiting(data, meta):
    asyncio.create_task(asyncio.sleep(1000))
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())

twice = lambda data: data * 2
add_one = functools.partial(lambda step, data, meta: data + step, 1)

def raises(data, meta):
    return inner(data)

def inner(data):
    raise ValueError(f"bad age {data}")

def beside(data, meta): prices.broken()
def nothing(data, meta): pass
def yields(data, meta): yield data
async def yields_later(data, meta): yield data
def a_set(data, meta): return {"all": {1}}
def same_keys(data, meta): return {1: 1, "1": 2}
def large(data, meta): return "x" * data
def leaves(data, meta): sys.exit(3)
async def leaves_later(data, meta): sys.exit(4)
def exits(data, meta): os._exit(3)
def kills_itself(data, meta): os.kill(os.getpid(), signal.SIGKILL)
def becomes_another(data, meta): os.execvp("sleep", ["sleep", "1000"])

def allocates(data, meta):
    kept = []
    while True:
        kept.append(bytearray(1_000_000))

def loops(data, meta):
    print("looping", flush=True)
    while True:
        pass

def closes_all(data, meta): os.closerange(0, 200)
def closes_prints(data, meta):
    os.close(1)
    return 1

def writes_everywhere(data, meta):
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.write(fd, b"junk" * 10)
        except OSError:
            pass

def threads(data, meta):
    threading.Thread(target=threading.Event().wait).start()
    return threading.active_count()

def programs(data, meta):
    return [os.getpid(), subprocess.Popen(["sleep", "1000"]).pid]

def forks(data, meta):
    os.fork()
    return "once"

def prints(data, meta):
    print("to standard output")
    print("to standard error", file=sys.stderr)
    logging.getLogger("mine").warning("a record")
    os.write(1, b"to the descriptor\\n")
    subprocess.run(["echo", "by a program"])
    print("unended", end="")

def floods(data, meta):
    for number in range(20_000):
        print("line", number)
    sys.stdout.close()

def patches_json(data, meta):
    import json
    json.loads = json.dumps = json.JSONEncoder.default = lambda *_, **__: 1 / 0
    return {"n": data}

async def stops_its_loop(data, meta):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(1000)

async def stops_its_loop_and_returns(data, meta):
    asyncio.get_running_loop().stop()
    return data

async def sets_its_loop_up(data, meta):
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.set_task_factory(lambda *_, **__: 1 / 0)
    loop.set_exception_handler(lambda *_: 1 / 0)
    return data

async def debugs_its_loop(data, meta):
    return asyncio.get_running_loop().get_debug()

def lets_no_loop_be_made(data, meta):
    asyncio.SelectorEventLoop = asyncio.new_event_loop = lambda: 1 / 0
    return data

def answers_for_itself(data, meta):
    import struct
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket"):
                os.write(fd, struct.pack("!cII", b"A", len(data), 0) + data.encode())
        except OSError:
            continue
    signal.pause()

def environment(data, meta): return dict(os.environ)
def here(data, meta): return [os.getcwd(), __file__, __name__]
def recursion(data, meta): return recursion(data, meta)
NOT_A_FUNCTION = 1
"""
PRICES = "TAX = 2\n\ndef broken():\n    raise KeyError('no price')\n"
PEOPLE = "from .. import prices\nNAME = f'people {prices.TAX}'\n"


def at(text: str) -> str:
    """Where a text of the module stands."""
    return f"x.fn.py:{MODULE[: MODULE.index(text)].count(chr(10)) + 1}"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    code = code_of(tmp_path, MODULE, prices=PRICES, **{"kinds/people": PEOPLE})
    made = Rig(code, call_s=30.0)
    yield made
    await made.pool.close()


async def test_functions_of_every_kind(rig: Rig) -> None:
    shaped = {"n": 10**300, "tax": 2, "packet": "P1", "kind": "people 2"}
    assert await rig.call("shape", {"n": 10**300}) == shaped
    assert await rig.call("twice", [1]) == [1, 1]
    assert await rig.call("add_one", 1) == 2
    pid, first = await rig.call("count")
    assert await rig.call("count") == [pid, first + 1]
    # What an earlier call left running does not run on in a later one.
    assert await rig.call("waiting") == 2
    assert await rig.call("waiting") == 2
    assert await rig.call("nothing", tap=True) is None
    folder, file, name = await rig.call("here")
    assert (folder, file) == (str(rig.code.folder), str(rig.code.folder / "x.fn.py"))
    assert name.startswith("pipo_fn_v1.")
    assert rig.pool.count == 1


async def test_each_fault_is_told_and_costs_its_own_call(rig: Rig) -> None:
    pid, _ = await rig.call("count")
    for function, data, told in [
        ("raises", 7, f"fn.raises raised ValueError: bad age 7 ({at('raise ValueError')} in inner,"
                      f" from {at('return inner')} in raises)"),
        ("beside", 0, "fn.beside raised KeyError: 'no price' (prices.py:4 in broken,"
                      f" from {at('prices.broken()')} in beside)"),
        ("nothing", 0, "fn.nothing returned nothing; return the new data, or pipo.NULL for null"),
        ("a_set", 0, "fn.a_set returned what JSON cannot hold: data.all is a set"),
        ("leaves", 0, f"fn.leaves called sys.exit(3) ({at('sys.exit(3)')} in leaves)"),
        ("leaves_later", 0, f"fn.leaves_later called sys.exit(4) ({at('sys.exit(4)')} in"
                            " leaves_later)"),
        ("NOT_A_FUNCTION", 0, "x.fn.py defines no function `NOT_A_FUNCTION`"),
    ]:  # fmt: skip
        assert await rig.fault(function, data) == told
    for function in ("yields", "yields_later"):
        # A tap's result counts for nothing, and this one has done nothing.
        with pytest.raises(FunctionFailed, match=f"fn.{function} is a generator, so nothing of it"):
            await rig.call(function, tap=True)
    assert "RecursionError: maximum recursion depth exceeded" in await rig.fault("recursion")
    # None of them has cost the process anything.
    assert (await rig.call("count"))[0] == pid


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("exits", "fn.exits ended its process (exit status 3)"),
        ("kills_itself", "fn.kills_itself ended its process (SIGKILL)"),
        ("becomes_another", "fn.becomes_another closed the pipe to Pipo"),
        ("closes_all", "fn.closes_all ended its process (it closed the pipe to Pipo)"),
        ("writes_everywhere", "fn.writes_everywhere wrote into the pipe to Pipo"),
        ("allocates", "fn.allocates ran out of memory: its process may use 256 MiB;"
                      f" MemoryError ({at('kept.append')} in allocates)"),
    ],
)  # fmt: skip
async def test_a_process_that_is_spoiled_is_replaced(rig: Rig, function: str, told: str) -> None:
    pid, _ = await rig.call("count")
    assert await rig.fault(function) == told
    # The next call runs, in another process.
    assert (await rig.call("count"))[1] == 1
    wait_for(lambda: not _runs(pid), what="the old one is gone")


async def test_what_a_call_changes_for_all_is_no_matter_of_the_next(rig: Rig) -> None:
    assert await rig.call("patches_json", 1) == {"n": 1}
    pid, _ = await rig.call("count")
    assert "RuntimeError: Event loop stopped" in await rig.fault("stops_its_loop")
    assert await rig.call("waiting") == 2
    assert await rig.call("stops_its_loop_and_returns", 1) == 1
    assert await rig.call("waiting") == 2
    assert await rig.call("sets_its_loop_up", 1) == 1
    assert await rig.call("waiting") == 2
    assert await rig.call("debugs_its_loop") is False
    assert (await rig.call("count"))[0] == pid


async def test_a_process_where_no_loop_can_be_made_is_replaced(rig: Rig) -> None:
    assert await rig.call("lets_no_loop_be_made", 1) == 1
    assert "ZeroDivisionError" in await rig.fault("waiting")
    assert await rig.call("waiting") == 2


@pytest.mark.parametrize("head", ["[1]", "{", "[" * 100_000], ids=["list", "cut", "deep"])
async def test_what_is_no_answer_of_ours_costs_its_call(rig: Rig, head: str) -> None:
    told = "fn.answers_for_itself wrote into the pipe to Pipo"
    assert await rig.fault("answers_for_itself", head) == told
    assert (await rig.call("count"))[1] == 1


async def test_a_call_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    text = (
        "import os, subprocess\n"
        "def loops(data, meta):\n"
        "    print(subprocess.Popen(['sleep', '1000']).pid)\n"
        "    while True: pass\n"
        "def ok(data, meta): return 1\n"
    )
    rig = Rig(code_of(tmp_path, text), call_s=1.0)
    try:
        told = "fn.loops did not return within 1 s; its process was ended"
        assert await rig.fault("loops") == told
        ((_, child, _, packet),) = rig.lines
        assert packet == "P1"
        assert await rig.call("ok") == 1
        wait_for(lambda: not _runs(int(child)), what="its program is gone too")
    finally:
        await rig.pool.close()


async def test_an_import_that_fails_fails_the_call(rig: Rig, tmp_path: Path) -> None:
    broken = code_of(tmp_path, "x = 1\nimport nothing_like_it\n", name="v2")
    told = await rig.fault("f", code=broken)
    assert told == (
        "fn.f has a module that does not import: x.fn.py line 2: ModuleNotFoundError: "
        "No module named 'nothing_like_it': `import nothing_like_it`"
    )
    assert await rig.call("twice", [1]) == [1, 1]
    assert "ModuleNotFoundError" in await rig.fault("f", code=broken)


async def test_each_version_runs_its_own_text(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "x.fn.py").write_text("raise ValueError('the file is never read')")
    newer = code_of(
        tmp_path, "from . import prices\ndef shape(data): return prices.TAX", name="v2",
        prices="TAX = 3",
    )  # fmt: skip
    for _ in range(2):
        assert await rig.call("shape", {}, code=newer) == 3
        assert (await rig.call("shape", {}))["tax"] == 2


async def test_results_keep_to_the_limit_and_to_json(rig: Rig) -> None:
    assert len(await rig.call("large", LIMIT_BYTES - 2)) == LIMIT_BYTES - 2
    with pytest.raises(FunctionFailed) as caught:
        await rig.call("large", LIMIT_BYTES - 1)
    assert str(caught.value) == (
        f"the result of fn.large has {LIMIT_BYTES + 1} bytes, more than engine.packet_limit"
        f" ({LIMIT_BYTES}); make it smaller, or raise engine.packet_limit"
    )
    assert caught.value.hopeless
    with pytest.raises(ValueError, match="the key '1' stands twice"):
        await rig.call("same_keys")


async def test_prints_of_every_kind_arrive_with_their_call(rig: Rig) -> None:
    await rig.call("prints", tap=True)
    assert rig.lines == [
        ("info", "to standard output", "shape", "P1"),
        ("info", "to standard error", "shape", "P1"),
        ("warning", "a record", "shape", "P1"),
        ("info", "to the descriptor", "shape", "P1"),
        ("info", "by a program", "shape", "P1"),
        ("info", "unended", "shape", "P1"),
    ]
    rig.lines.clear()
    await rig.call("floods", tap=True)
    assert rig.lines[0][1] == "line 0"
    assert rig.lines[-1][1] == "functions printed 19800 more lines than are kept"
    assert await rig.call("closes_prints") == 1
    rig.lines.clear()
    await rig.call("prints", tap=True)
    assert len(rig.lines) == 6


async def test_threads_forks_and_programs_are_left_alone_until_the_end(rig: Rig) -> None:
    assert await rig.call("threads") == 2
    assert await rig.call("forks") == "once"
    pid, child = await rig.call("programs")
    assert await rig.call("twice", 1) == 2
    assert _runs(pid)
    assert _runs(child)
    await rig.pool.close()
    for gone in (pid, child):
        wait_for(lambda gone=gone: not _runs(gone), what="both are gone")  # type: ignore[misc]


async def test_nothing_of_the_environment_but_what_programs_need(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t")
    found = await rig.call("environment")
    assert "PATH" in found
    assert "API_KEY" not in found
    assert "PIPO_HOME" not in found


async def test_helpers_grow_with_the_calls_and_end_when_idle(tmp_path: Path) -> None:
    text = (
        "import os, time\n"
        "def meets(data):\n"
        "    open(f'{data[0]}', 'w').close()\n"
        "    while len(os.listdir('.')) < data[1]: time.sleep(0.005)\n"
        "    return os.getpid()\n"
    )
    rig = Rig(code_of(tmp_path, text), size=3, idle_s=0.2)
    try:
        # Three that wait for each other, and a fourth that has to wait for one of them.
        calls = [rig.call("meets", [n, 3]) for n in range(4)]
        pids = await asyncio.gather(*calls)
        assert len(set(pids)) == 3
        await _until(lambda: rig.pool.count == 0)
        for pid in pids:
            wait_for(lambda pid=pid: not _runs(pid))  # type: ignore[misc]
        assert await rig.call("meets", [0, 1]) not in pids
    finally:
        await rig.pool.close()


async def test_a_call_that_is_given_up_ends_its_process(rig: Rig) -> None:
    pid, _ = await rig.call("count")
    call = asyncio.create_task(rig.call("loops"))
    await _until(lambda: rig.lines)
    waiting = asyncio.create_task(rig.call("count"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    other, _ = await waiting
    assert other != pid
    wait_for(lambda: not _runs(pid))


async def test_after_the_close_nothing_is_started(rig: Rig) -> None:
    await rig.pool.close()
    assert "the pipeline is stopping" in await rig.fault("count")


async def _until(condition: Callable[[], object]) -> None:
    """Waits while the loop turns."""
    await asyncio.to_thread(wait_for, condition, deadline_s=40.0)


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.soak
async def test_the_real_limit_of_a_call(rig: Rig) -> None:
    told = "fn.loops did not return within 30 s; its process was ended"
    assert await rig.fault("loops") == told
    assert await rig.call("twice", [1]) == [1, 1]
