"""The checks `status` and `follow_up` against a real receiver (D036-D041, edges 198-200)."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors.contract import CheckError, Judgement, Passed, Pending, Target
from pipo.connectors.http.checks import BODY_BYTES_MAX, HttpChecks
from tests.receiver import Got, Receiver, Reply

SHORT_S = 0.5


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
async def checks() -> AsyncIterator[HttpChecks]:
    made = HttpChecks(SystemClock())
    yield made
    await made.close()


def hurry(checks: HttpChecks) -> None:
    """A look has only `SHORT_S`; for tests whose receiver does not answer."""
    checks._timeout_s = checks._sender._timeout_s = SHORT_S


def follow_up(url: str, **settings: Any) -> Target:
    return Target("follow_up", {"url": url, **settings}, {"status": 200}, {})


def status(result: Any, **settings: Any) -> Target:
    return Target("status", settings, result, {})


async def judged(checks: HttpChecks, *targets: Target) -> list[Judgement | CheckError]:
    """What one look says of targets of one place."""
    (place,) = {checks.place(target) for target in targets}
    found: list[Judgement | CheckError] = []
    looks = await checks.look(place, targets)
    for target, seen in zip(targets, looks, strict=True):
        try:
            found.append(seen if isinstance(seen, CheckError) else checks.judge(target, seen))
        except CheckError as error:
            found.append(error)
    return found


async def one(checks: HttpChecks, target: Target) -> Judgement | CheckError:
    (found,) = await judged(checks, target)
    return found


def why(found: Judgement | CheckError) -> str:
    assert not isinstance(found, Passed), found
    return found.message if isinstance(found, CheckError) else found.why


async def test_status_reads_what_is_stored(checks: HttpChecks) -> None:
    passed = await one(checks, status({"status": 201}, success=[201]))
    assert passed == Passed({"status": 201})
    pending = await one(checks, status({"status": 409}, success=[201]))
    assert pending == Pending("the write was answered 409, which does not count", {"status": 409})
    assert isinstance(await one(checks, status({"status": 204})), Passed)


@pytest.mark.parametrize("result", [None, {}, {"status": None}, {"status": "200"}, []])
async def test_no_stored_status_is_an_error(checks: HttpChecks, result: Any) -> None:
    assert "left no status" in why(await one(checks, status(result)))


async def test_a_follow_up_asks_and_tells_what_was_there(
    checks: HttpChecks, receiver: Receiver
) -> None:
    receiver.script("/c", Reply(200, '{"email":"a@x","id":7}'))
    target = follow_up(
        f"{receiver.url}/c?email=a@x", headers={"Authorization": "t"}, match={"email": "a@x"}
    )
    assert await one(checks, target) == Passed(
        {
            "url": f"{receiver.url}/c?email=a@x",
            "status": 200,
            "bytes": 22,
            "match": {"email": "a@x"},
        }
    )
    (got,) = receiver.got
    assert (got.method, got.target, got.body) == ("GET", "/c?email=a@x", b"")
    assert got.all("Authorization") == ["t"]
    assert got.all("Idempotency-Key") == []


@pytest.mark.parametrize(
    ("match", "body", "told"),
    [
        ({"email": "a"}, '{"email":"b"}', 'email is "b", not "a"'),
        ({"email": None}, "{}", "there is no email"),
        (None, "{}", "the body is {}, not null"),
        ({"a": 1}, "<html>", "the body is no JSON"),
        ({"a": 1}, "[" * 2000, "the body is no JSON"),
        ("needle", "hay", 'the body does not contain "needle"'),
        (5, "6", "the body is 6, not 5"),
    ],
)
async def test_what_does_not_match(
    checks: HttpChecks, receiver: Receiver, match: Any, body: str, told: str
) -> None:
    receiver.script("/c", Reply(200, body))
    found = await one(checks, follow_up(f"{receiver.url}/c", match=match))
    assert isinstance(found, Pending)
    assert told in found.why


@pytest.mark.parametrize(
    ("match", "body", "headers"),
    [
        ("eed", "needle", {}),
        ("", "", {}),
        ("ü", "grüße".encode("latin-1"), {"Content-Type": "text/plain; charset=iso-8859-1"}),
        ("x", b"x\xff", {"Content-Type": "text/plain; charset=none-such"}),
        ([{"id": 2}], '[{"id":1},{"id":2,"n":0}]', {}),
        ({"n": 1}, gzip.compress(b'{"n":1}', mtime=0), {"Content-Encoding": "gzip"}),
    ],
)
async def test_what_matches(
    checks: HttpChecks, receiver: Receiver, match: Any, body: Any, headers: dict[str, str]
) -> None:
    receiver.script("/c", Reply(200, body, headers))
    assert isinstance(await one(checks, follow_up(f"{receiver.url}/c", match=match)), Passed)


async def test_the_status_comes_first(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/c", Reply(404, '{"email":"a"}'))
    target = follow_up(f"{receiver.url}/c", match={"email": "a"})
    assert why(await one(checks, target)) == f"GET {receiver.url}/c answered 404"
    accepted = follow_up(f"{receiver.url}/c", match={"email": "a"}, success=[404])
    assert isinstance(await one(checks, accepted), Passed)


async def test_a_pause_that_is_asked_for(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/c", Reply(429, headers={"Retry-After": "3"}))
    found = await one(checks, follow_up(f"{receiver.url}/c"))
    assert isinstance(found, Pending)
    assert found.pause_s == 3.0


async def test_an_unreachable_receiver_is_an_error_that_says_so(checks: HttpChecks) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://user:pw@127.0.0.1:{probe.getsockname()[1]}/c"
    found = await one(checks, follow_up(url))
    assert isinstance(found, CheckError)
    assert found.message == (
        f"GET {url.replace('user:pw@', '')} failed: no connection: Connection refused; "
        "check that the receiver runs and the URL is right"
    )


@pytest.mark.parametrize("settings", [{"url": "nowhere"}, {"url": ""}, {"url": {"a": 1}}])
async def test_settings_that_no_request_can_have(
    checks: HttpChecks, settings: dict[str, Any]
) -> None:
    assert isinstance(await one(checks, Target("follow_up", settings, None, {})), CheckError)
    bad = follow_up("http://127.0.0.1:9/", headers={"X": "a\nb"})
    assert "the header X holds" in why(await one(checks, bad))


async def test_a_hanging_receiver_fails_the_look(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/head", Reply(delay_s=60.0))
    receiver.script("/drip", Reply(body="drip" * 100, pace_s=0.3))
    hurry(checks)
    for path in ("/head", "/drip"):
        began = time.monotonic()
        found = await one(checks, follow_up(f"{receiver.url}{path}", match="x"))
        assert SHORT_S <= time.monotonic() - began < 30.0
        assert "no answer within 0.5 s" in why(found)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (bytes(50 << 20), {}),
        (bytes(BODY_BYTES_MAX + 1), {}),
        (gzip.compress(bytes(50 << 20), mtime=0), {"Content-Encoding": "gzip"}),
    ],
)
async def test_a_body_beyond_the_limit_is_an_error(
    receiver: Receiver, body: bytes, headers: dict[str, str]
) -> None:
    checks = HttpChecks(SystemClock())
    receiver.script("/c", Reply(200, body, headers))
    found = await one(checks, follow_up(f"{receiver.url}/c", match="x"))
    assert isinstance(found, CheckError)
    assert "longer than 1048576 bytes: ask for less" in found.message
    # Without `match` nobody needs the body.
    assert isinstance(await one(checks, follow_up(f"{receiver.url}/c")), Passed)
    await checks.close()


async def test_a_body_that_breaks_off_is_an_error(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/c", Reply(200, "half", drops="body"))
    assert "the answer broke off" in why(await one(checks, follow_up(f"{receiver.url}/c")))


async def test_a_redirect_within_the_host_is_followed(
    checks: HttpChecks, receiver: Receiver
) -> None:
    receiver.script("/a", Reply(302, headers={"Location": "/b?x=1"}))
    receiver.script("/b", Reply(200, "here"))
    target = follow_up(f"{receiver.url}/a", match="here", headers={"Authorization": "t"})
    assert isinstance(await one(checks, target), Passed)
    assert [got.target for got in receiver.got] == ["/a", "/b?x=1"]
    assert receiver.got[1].all("Authorization") == ["t"]


async def test_a_redirect_that_is_success_is_an_answer(
    checks: HttpChecks, receiver: Receiver
) -> None:
    receiver.script("/a", Reply(302, headers={"Location": "/b"}))
    target = follow_up(f"{receiver.url}/a", success=["3xx"])
    assert isinstance(await one(checks, target), Passed)
    assert receiver.at("/b") == []


async def test_a_redirect_to_elsewhere_is_not_followed(
    checks: HttpChecks, receiver: Receiver
) -> None:
    with Receiver() as other:
        for where in (f"{other.url}/b", f"http://localhost:{receiver.port}/b", "file:///b"):
            receiver.script("/a", Reply(302, headers={"Location": where}))
            found = await one(checks, follow_up(f"{receiver.url}/a"))
            assert isinstance(found, Pending)
            assert f"it redirects to {where}" in found.why
        assert other.got == []
        assert receiver.at("/b") == []


async def test_redirects_end(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/a", Reply(302, headers={"Location": "/a"}))
    assert "more than 3 redirects" in why(await one(checks, follow_up(f"{receiver.url}/a")))
    assert len(receiver.got) == 4


async def test_the_time_limit_is_that_of_all_redirects(
    checks: HttpChecks, receiver: Receiver
) -> None:
    receiver.script("/a", Reply(302, headers={"Location": "/a"}, delay_s=0.3))
    hurry(checks)
    told = why(await one(checks, follow_up(f"{receiver.url}/a")))
    assert told == f"GET {receiver.url}/a failed: no answer within 0.5 s"


async def test_one_question_is_asked_once_for_all(checks: HttpChecks, receiver: Receiver) -> None:
    receiver.script("/all", Reply(200, '["a","b"]'))
    targets = [follow_up(f"{receiver.url}/all", match=[word]) for word in ("a", "b", "c")]
    found = await judged(checks, *targets)
    assert [type(one) for one in found] == [Passed, Passed, Pending]
    assert len(receiver.got) == 1


async def test_questions_that_differ_are_places_of_their_own(
    checks: HttpChecks, receiver: Receiver
) -> None:
    """So a slow answer holds up no other, and nobody is judged by another's credentials."""
    url = f"{receiver.url}/c?token=s3cr3t-t"
    targets = [
        follow_up(url),
        follow_up(f"{url}x"),
        follow_up(url, headers={"Authorization": "s3cr3t-a"}),
        follow_up(url, headers={"Authorization": "s3cr3t-b"}),
    ]
    places = [checks.place(target) for target in targets]
    assert len(set(places)) == 4
    assert all(place.startswith(f"{receiver.url} #") for place in places)
    assert "s3cr3t" not in str(places)
    receiver.script("/c", lambda got: Reply(delay_s=60.0 if got.target.endswith("x") else 0.0))
    slow, quick = targets[1], targets[0]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(one(checks, slow))
        assert isinstance(await one(checks, quick), Passed)
        assert not waiting.done()
        waiting.cancel()


async def test_it_closes_twice_and_unused() -> None:
    checks = HttpChecks(SystemClock())
    await checks.close()
    await checks.close()


def test_the_receiver_keeps_a_key_once() -> None:
    receiver = Receiver()
    with receiver:
        for body in (b"1", b"2"):
            receiver.took(Got("POST", "/x", [("Idempotency-Key", "k")], body, 0.0, 1))
    assert (receiver.kept, receiver.effects) == ({"k": b"1"}, 1)
