"""Bad input gets its own clear answer, and leaves the process as healthy (issue 2, show 5)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack

PIPELINE = """pipo: 1
name: door
input: { via: http, with: { path: /in } }
output: { from: input, to: file, with: { path: ./door.jsonl } }
"""
DOOR = "/in/door/in"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("door"))
    made.write("door.pipo", PIPELINE)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.kill_all()


BAD_BODIES = {
    "malformed": (b'{"a": ', 400, "truncated"),
    "nothing": (b"", 400, "empty"),
    "blank": (b"  \n", 400, "empty"),
    "not UTF-8": (b'{"a": "\xff"}', 400, "UTF-8"),
    "half a surrogate": (b'{"name":"hi \\ud83d","n":1}', 400, "surrogate"),
    "raw half a surrogate": (b'{"name":"\xed\xa0\xbd","n":4}', 400, "UTF-8"),
    "not a number": (b'{"a": NaN}', 400, "invalid character"),
    "too large a number": (b'{"a": 1e400}', 400, "range"),
    "a key twice": (b'{"a": 1, "a": 2}', 400, "twice"),
    "10,000 deep": (b"[" * 10_000 + b"]" * 10_000, 400, "512"),
    "600 deep": (b"[" * 600 + b"]" * 600, 400, "512"),
    "two values": (b"{} {}", 400, "trailing"),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400, "byte order mark"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_is_refused_with_its_reason(door: Stack, case: str) -> None:
    body, status, word = BAD_BODIES[case]
    accepted = door.stats("door")["accepted"]
    pid = door.pipeline_pid("door")
    found, _, answer = door.request(DOOR, body)
    said = json.loads(answer)
    assert found == status
    assert word in said["error"], said
    assert said["hint"]
    assert door.request(DOOR, b'{"fine": true}')[0] == 202
    assert door.stats("door")["accepted"] == accepted + 1
    assert door.pipeline_pid("door") == pid


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
def test_200_megabytes_are_cut_off_early(door: Stack, chunked: bool) -> None:
    """413 before the body has come; the memory of gateway and pipeline stays flat."""
    pids = [door.pipeline_pid("door"), door.service_pid("gateway")]
    before = [peak_mb(pid) for pid in pids]
    piece = b"x" * (1 << 20)
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    connection.putrequest("POST", DOOR)
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    else:
        connection.putheader("Content-Length", str(200 << 20))
    connection.endheaders()
    sent = 0
    try:
        for _ in range(200):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            sent += 1
    except OSError:
        pass  # The server has answered and closed; what it said is read below.
    try:
        answer = connection.getresponse()
        assert answer.status == 413
        assert "packet_limit" in answer.read().decode()
    except OSError:
        assert sent < 100, "the whole body was read"
    connection.close()
    for pid, mb in zip(pids, before, strict=True):
        assert peak_mb(pid) < mb + 100
    assert door.request(DOOR, b'{"fine": true}')[0] == 202


def peak_mb(pid: int | None) -> float:
    """The largest resident size of a process so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if "VmHWM" in line) / 1024


@pytest.mark.slow
def test_a_wrong_path_lists_the_routes(door: Stack) -> None:
    status, _, answer = door.request("/in/door/elsewhere", b"{}")
    assert status == 404
    assert "POST /in" in json.loads(answer)["hint"]


@pytest.mark.slow
def test_a_wrong_method_says_what_is_allowed(door: Stack) -> None:
    status, headers, answer = door.request(DOOR, method="GET")
    assert status == 405
    assert headers["Allow"] == "POST"
    assert json.loads(answer)["error"]


@pytest.mark.slow
def test_an_unknown_pipeline_is_not_found(door: Stack) -> None:
    status, _, answer = door.request("/in/nobody/in", b"{}")
    assert status == 404
    assert "nobody" in json.loads(answer)["error"]


@pytest.mark.slow
@pytest.mark.seed("O008", "O001")
@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("pipo: 1\n\tname: x\n", "2:1", "P001"),
        ("pipo: 1\nname: x\nname: y\n", "3:1", "P001"),
        (PIPELINE.replace("via: http", "vai: http"), "3:10", "P002"),
        (PIPELINE.replace("from: input,", "from: inptu,"), "4:17", "P010"),
        (
            "pipo: 1\nname: x\ninput: { via: push }\nnodes:\n"
            "  a: { from: b, filter: 'true' }\n  b: { from: a, filter: 'true' }\n"
            "output: { from: b, to: stdout }\n",
            "",
            "P022",
        ),
        (PIPELINE.replace("to: file", "to: fil"), "4:28", "P002"),
    ],
    ids=["tab", "key twice", "unknown key", "unknown node", "cycle", "unknown output"],
)
def test_a_bad_file_is_refused_at_its_place(door: Stack, text: str, place: str, code: str) -> None:
    path = door.write("bad.pipo", text)
    try:
        checked = door.pipo("check", "bad.pipo")
        started = door.pipo("start", "bad.pipo")
    finally:
        path.unlink()
    assert checked.returncode == 1
    assert f"bad.pipo:{place}" in checked.stdout
    assert f"error  {code}" in checked.stdout
    assert started.returncode == 1
    assert code in started.stderr + started.stdout
    assert "Traceback" not in checked.stderr + started.stderr
    assert door.request(DOOR, b'{"fine": true}')[0] == 202
