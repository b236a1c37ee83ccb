"""R45: the number of series stays the same whatever packets, clients and errors come."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.packets import running
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

CARD = """\
input: { via: http, with: { path: /card } }
nodes:
  good: { from: input, filter: "lower(data.word) != 'x'", on_error: { message: "no word in ${data.id}" } }
output: { from: good, to: file, with: { path: "./out/${data.id}.jsonl" } }
delivered: { check: line_contains, with: { value: "${meta.packet_id}" } }
"""
SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$')
FAMILY = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("card"), {"card": CARD}) as made:
        yield made


def scrape(stack: Stack) -> dict[str, float]:
    """Each series and its value."""
    status, _, body = stack.request("/metrics", method="GET")
    assert status == 200
    found = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.match(line)
            assert sample, line
            found[line.rpartition(" ")[0]] = float(sample[3])
    return found


def own_series(stack: Stack, kind: str) -> set[str]:
    """The series of a service's own /metrics."""
    [entry] = (stack.home / "run/services").glob(f"{kind}-*.json")
    address = json.loads(entry.read_text())["http_address"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


def send(stack: Stack, first: int, count: int) -> None:
    """Packets with ids of their own, some from a port of their own, every third without a word."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    for n in range(first, first + count):
        if n % 10 == 0:
            connection.close()
        data = {"id": f"id-{n}"} | ({} if n % 3 == 0 else {"word": "y"})
        connection.request("POST", "/in/card/card", json.dumps(data))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 202
    connection.close()
    stack.settle("card")


def total(series: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in series.items() if "_total" in name.partition("{")[0]}


def test_no_new_series(stack: Stack) -> None:
    send(stack, 0, 10)
    for path in ("/in/card/none", "/in/nobody/x"):
        assert stack.request(path, b"{}")[0] == 404
    before = scrape(stack)
    own = {kind: own_series(stack, kind) for kind in ("runner", "checker")}
    send(stack, 10, 300)
    for n in range(20):
        assert stack.request(f"/in/unknown-{n}/x", b"{}")[0] == 404
        assert stack.request(f"/in/card/nowhere-{n}", b"{}")[0] == 404
        assert stack.request(f"/api/nowhere-{n}", method="GET")[0] == 404
    after = scrape(stack)
    assert set(after) - set(before) == set()
    assert len(after) == len(before)
    assert {kind: own_series(stack, kind) for kind in own} == own
    for name, value in total(before).items():
        assert after[name] >= value
    for name in after:
        for word in ("id-", "unknown-", "nowhere", "127.0.0.1", "no word", ".jsonl"):
            assert word not in name


@pytest.mark.parametrize("kind", ["checker", "gateway", "runner"])
def test_a_new_service_makes_no_new_series(stack: Stack, kind: str) -> None:
    before = scrape(stack)
    pid = stack.service_pid(kind)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.service_pid(kind) not in (None, pid), what=f"the {kind} again")
    after = wait_for(lambda: series_or_nothing(stack, set(before)), what="the same series")
    for name, value in total(before).items():
        if "pipeline=" in name and "refused" not in name:
            assert after[name] >= value


def series_or_nothing(stack: Stack, wanted: set[str]) -> dict[str, float] | None:
    """What /metrics says once it names just `wanted`."""
    try:
        found = scrape(stack)
    except OSError:
        return None
    return found if set(found) == wanted else None


def test_names_and_types(stack: Stack) -> None:
    text = stack.request("/metrics", method="GET")[2].decode()
    types = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    helps = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    names = [name for name, _ in types]
    assert sorted(set(names)) == sorted(names)
    assert sorted(helps) == sorted(names)
    kinds: dict[str, str] = dict(types)
    for series in scrape(stack):
        name = series.partition("{")[0]
        kind = kinds.get(name) or kinds[FAMILY.sub("", name)]
        assert (kind == "counter") == name.endswith("_total"), series
        assert not re.search(r"_(ms|millis|milliseconds|minutes)(_|$)", name)


def test_a_restart_lowers_no_counter(stack: Stack) -> None:
    before = total(scrape(stack))
    pid = stack.pipeline_pid("card")
    assert stack.pipo("stop", "card").returncode == 0
    wait_for(lambda: stack.get("/api/pipelines/card")["state"] == "stopped")
    stopped = total(scrape(stack))
    assert stack.pipo("start", "card.pipo").returncode == 0
    wait_for(lambda: stack.pipeline_pid("card") not in (None, pid) and stack.stats("card"))
    after = total(scrape(stack))
    for name, value in before.items():
        if "pipeline=" in name and "refused" not in name:
            assert stopped.get(name, value) == value, name
            assert after[name] == value, name
