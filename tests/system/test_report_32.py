"""R32 for requests and pushes: a full buffer refuses, keeps what it took, and takes again.

The schedule, the watched folder and the chain of this report come with their inputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.packets import push
from tests.receiver import Receiver
from tests.stack import Stack, free_ports, journal_of, query, wait_for

pytestmark = pytest.mark.slow

FULL = """\
pipo: 1
name: full
buffer: {{ max: 100 }}
inputs:
  hook: {{ via: http, with: {{ path: /h }} }}
  hand: {{ via: push }}
output:
  from: [hook, hand]
  to: http
  with: {{ url: "http://127.0.0.1:{port}/x" }}
  on_error: {{ retry: 1000, delay: 200ms }}
"""


@pytest.fixture
def port() -> int:
    return free_ports(1)


@pytest.fixture
def stack(tmp_path: Path, port: int) -> Iterator[Stack]:
    made = Stack(tmp_path)
    path = made.write("full.pipo", FULL.format(port=port))
    try:
        yield made.start(path)
        assert made.stop() == 0
    finally:
        made.kill_all()


def test_a_full_buffer_refuses_and_loses_nothing(stack: Stack, port: int) -> None:
    with ThreadPoolExecutor(20) as pool:
        posts = list(pool.map(lambda n: stack.request("/in/full/h", b'{"n":%d}' % n), range(150)))
    answers = Counter(status for status, _, _ in posts)
    assert answers == {202: 100, 503: 50}
    for status, headers, body in posts:
        if status == 503:
            assert headers["Retry-After"] == "5"
            assert "full" in json.loads(body)["error"]
    pushed = stack.pipo("push", "full", "--data", "{}")
    assert pushed.returncode == 1
    assert "buffer.max" in pushed.stderr
    assert query(journal_of(stack.home, "full"), "SELECT count(*) FROM units") == [[100]]
    metrics = stack.request("/metrics", method="GET")[2].decode()
    assert 'pipo_packets_pending{pipeline="full"} 100' in metrics
    accepted = {json.loads(body)["packet_id"] for status, _, body in posts if status == 202}
    with Receiver(port) as receiver:
        wait_for(lambda: stack.stats("full").get("delivered") == 100)
        assert set(receiver.kept) == accepted
        assert receiver.effects == 100
        more = {push(stack, "full", {"n": n}, input="hand") for n in range(50)}
        wait_for(lambda: stack.stats("full").get("delivered") == 150)
        assert set(receiver.kept) == accepted | more
        assert receiver.effects == 150
    assert stack.stats("full")["dead_lettered"] == 0
