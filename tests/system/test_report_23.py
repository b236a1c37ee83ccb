"""R23: a receiver that asks for a pause gets it, from an output, a tap and a transform."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

from tests.packets import inspect, packet, push, running, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow


def paced(path: str, policy: str, more: str = "") -> str:
    return (
        f"{more}input: {{ via: push }}\noutput:\n  from: input\n  to: http\n"
        f'  with: {{ url: "${{env.STUB}}/{path}" }}\n  on_error: {{ {policy} }}\n'
    )


def stepping(kind: str, path: str) -> str:
    step = f'{kind}: http, with: {{ url: "${{env.STUB}}/{path}" }}'
    return (
        f"input: {{ via: push }}\nnodes:\n  ask: {{ from: input, {step},"
        " on_error: { retry: 1, delay: 100ms } }\noutput: { from: ask, to: stdout }\n"
    )


USUAL = "retry: 3, backoff: exponential, delay: 1s, max_delay: 60s"
PIPELINES = {
    "asked": paced("asked", USUAL),
    "dated": paced("dated", USUAL),
    "busy": paced("busy", USUAL),
    "tiny": paced("tiny", "retry: 1, delay: 100ms, max_delay: 1s"),
    **{f"odd{n}": paced(f"odd{n}", "retry: 1, delay: 300ms") for n in range(3)},
    "longer": paced("longer", "retry: 1, delay: 3s"),
    "four": paced("four", USUAL, "concurrency: 4\n"),
    "halted": paced("halted", USUAL),
    "tap": stepping("tap", "tap"),
    "transform": stepping("transform", "transform"),
}
NONSENSE = ("soon", "-5", "7 s")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("pauses"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def asks(value: str | Callable[[], str], status: int = 429) -> Callable[[Got], Reply]:
    """An answer that asks for a pause; a callable says for which when it is given."""
    return lambda got: Reply(
        status, "slow down", {"Retry-After": value() if callable(value) else value}
    )


def gap_s(receiver: Receiver, path: str) -> float:
    """The time between the two requests that there were."""
    first, second = receiver.at(path)
    return second.at - first.at


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("asked", "7", 429),
        ("dated", lambda: formatdate(time.time() + 7, usegmt=True), 429),
        ("busy", "7", 503),
    ],
)
def test_the_pause_is_kept(
    stack: Stack, receiver: Receiver, name: str, value: str, status: int
) -> None:
    receiver.script(f"/{name}", asks(value, status), Reply(stores=True))
    id = push(stack, name, {"n": 1})
    assert settled(stack, name, id)["state"] == "delivered"
    # A date knows whole seconds: the one asked for may be up to a second nearer.
    assert (6.0 if name == "dated" else 7.0) <= gap_s(receiver, f"/{name}")
    (retried,) = [one for one in inspect(stack, name, id)["events"] if "retr" in one["type"]]
    # A date is the nearer the later the answer is read.
    left = "[1-7]" if name == "dated" else "7"
    told = rf"answered {status}: slow down \(it asks for a pause of {left} s\)"
    assert re.search(told, str(retried))
    assert "answered" in stack.pipo("inspect", name, id).stdout


def test_the_pause_is_no_longer_than_max_delay(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/tiny", asks("86400"), Reply(stores=True))
    id = push(stack, "tiny", {"n": 1})
    assert settled(stack, "tiny", id)["state"] == "delivered"
    assert 1.0 <= gap_s(receiver, "/tiny") < 60.0


@pytest.mark.parametrize("n", range(3))
def test_nonsense_leaves_the_usual_pause(stack: Stack, receiver: Receiver, n: int) -> None:
    receiver.script(f"/odd{n}", asks(NONSENSE[n]), Reply(stores=True))
    id = push(stack, f"odd{n}", {"n": 1})
    assert settled(stack, f"odd{n}", id)["state"] == "delivered"
    assert gap_s(receiver, f"/odd{n}") >= 0.3


def test_the_larger_of_both_pauses_is_kept(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/longer", asks("1"), Reply(stores=True))
    id = push(stack, "longer", {"n": 1})
    assert settled(stack, "longer", id)["state"] == "delivered"
    assert gap_s(receiver, "/longer") >= 3.0


@pytest.mark.parametrize("kind", ["tap", "transform"])
def test_a_step_keeps_the_pause_too(stack: Stack, receiver: Receiver, kind: str) -> None:
    receiver.script(f"/{kind}", asks("2"), Reply(body=b"{}"))
    id = push(stack, kind, {"n": 1})
    assert settled(stack, kind, id)["state"] == "delivered"
    assert gap_s(receiver, f"/{kind}") >= 2.0
    (step,) = [one for one in inspect(stack, kind, id)["steps"] if one["step"] == "ask"]
    assert (step["attempts"], step["retries"][0]["wait_ms"]) == (2, 2000)


def test_who_waits_holds_up_no_other(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/four", asks("30"), Reply(stores=True))
    waits = push(stack, "four", {"n": 0})
    wait_for(lambda: receiver.at("/four"))
    for n in range(1, 13):
        id = push(stack, "four", {"n": n})
        assert settled(stack, "four", id)["state"] == "delivered"
    assert packet(stack, "four", waits)["state"] == "writing"


def test_a_stop_does_not_wait_and_a_start_does_not_come_early(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.script("/halted", asks("10"), Reply(stores=True))
    id = push(stack, "halted", {"n": 1})
    wait_for(lambda: receiver.at("/halted"))
    wait_for(lambda: "retr" in str(inspect(stack, "halted", id)["events"]))
    pid = stack.pipeline_pid("halted")
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: stack.pipeline_pid("halted") not in (None, pid))
    assert len(receiver.at("/halted")) == 1, "the stop waited for the pause"
    wait_for(lambda: len(receiver.at("/halted")) == 2)
    assert gap_s(receiver, "/halted") >= 10.0
    assert settled(stack, "halted", id)["state"] == "delivered"
