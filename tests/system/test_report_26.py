"""R26: a receiver that works and answers too late is asked again with the same key.

That a replay and a rerun send it too is shown in `tests/seeds`, in test_dead_letters and test_rerun.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.packets import push, running, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

LATE_S = 35.0


def slow(path: str, more: str = "") -> str:
    return (
        "concurrency: 4\ninput: { via: push }\noutput:\n  from: input\n  to: http\n"
        f'  with: {{ url: "${{env.STUB}}/{path}", body: "${{data}}"{more} }}\n'
        "  on_error: { retry: 2, delay: 1s }\n"
    )


PIPELINES = {
    "late": slow("late"),
    "killed": slow("killed"),
    "own": slow("own", ', headers: { idempotency-key: "${data.order}" }'),
}


def late(got: Got, receiver: Receiver) -> Reply:
    """Stored at once, answered too late; from the second call of a key on it is in time."""
    again = receiver.keys(got.path).count(got.key) > 1
    return Reply(stores=True, delay_s=0.0 if again else LATE_S)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        for path in PIPELINES:
            made.script(f"/{path}", lambda got: late(got, made))
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("late"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        # All at once: each waits for the same 30 s.
        made.sent = {  # type: ignore[attr-defined]
            "late": [push(made, "late", {"same": 1}) for _ in range(2)],
            "killed": [push(made, "killed", {"same": 1}) for _ in range(2)],
            "own": [push(made, "own", {"order": f"o-{n}"}) for n in range(2)],
        }
        yield made


def test_the_key_is_in_the_journal_before_the_first_byte(stack: Stack, receiver: Receiver) -> None:
    wait_for(lambda: len(receiver.at("/own")) == 2)
    rows = query(journal_of(stack.home, "own"), "SELECT key, state FROM units ORDER BY key")
    assert rows == [["o-0", "writing"], ["o-1", "writing"]]


def test_a_kill_between_two_attempts_keeps_the_key(stack: Stack, receiver: Receiver) -> None:
    ids = stack.sent["killed"]  # type: ignore[attr-defined]
    wait_for(lambda: len(receiver.at("/killed")) == 2)
    pid = stack.pipeline_pid("killed")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(receiver.at("/killed")) == 4)
    assert sorted(receiver.keys("/killed")) == sorted(2 * ids)
    wait_for(lambda: stack.stats("killed").get("delivered") == 2)


def test_a_late_answer_is_a_timeout_and_the_repeat_is_recognised(
    stack: Stack, receiver: Receiver
) -> None:
    for name in ("late", "own"):
        for id in stack.sent[name]:  # type: ignore[attr-defined]
            assert settled(stack, name, id, deadline_s=60.0)["state"] == "delivered"
    ids = stack.sent["late"]  # type: ignore[attr-defined]
    assert sorted(receiver.keys("/late")) == sorted(2 * ids)
    assert [got.all("Idempotency-Key") for got in receiver.at("/own")].count(["o-0"]) == 2
    assert sorted(receiver.keys("/own")) == ["o-0", "o-0", "o-1", "o-1"]
    assert set(receiver.kept) == {*ids, *stack.sent["killed"], "o-0", "o-1"}  # type: ignore[attr-defined]
    assert receiver.effects == 6
    shown = stack.pipo("inspect", "late", ids[0]).stdout
    assert f"POST {receiver.url}/late failed: no answer within 30 s" in shown
