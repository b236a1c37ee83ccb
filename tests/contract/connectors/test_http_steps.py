"""The http tap and transform against a real receiver (facts §4.2, §4.3, edge 105, 109)."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Refused, RetryAfter, StepCall, WriteFailed
from pipo.connectors.http.sending import NoAnswer
from pipo.connectors.http.tap import HttpTap
from pipo.connectors.http.transform import HttpTransform
from tests.contract.connectors.contract import context
from tests.receiver import Receiver, Reply

SHORT_S = 0.5
LIMIT = 200
JSON = {"Content-Type": "application/json; charset=utf-8"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(params=["tap", "transform"])
async def step(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[HttpTap | HttpTransform]:
    kind = HttpTap if request.param == "tap" else HttpTransform
    made = kind(context(tmp_path, packet_limit=LIMIT, mask=masked))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def transform(tmp_path: Path) -> AsyncIterator[HttpTransform]:
    made = HttpTransform(context(tmp_path, packet_limit=LIMIT))
    await made.open()
    yield made
    await made.close()


def masked(text: str) -> str:
    return text.replace("s3cret", "***")


def call(url: str, data: Any = None, **settings: Any) -> StepCall:
    return StepCall("p1:a", "asked", data, {}, {"url": url, **settings})


async def test_one_request_with_the_steps_own_key(
    step: HttpTap | HttpTransform, receiver: Receiver
) -> None:
    await step.run(call(f"{receiver.url}/x", {"n": 1}))
    (got,) = receiver.at("/x")
    assert (got.method, got.json, got.key) == ("POST", {"n": 1}, "p1:a:asked")


async def test_an_own_key_replaces_it(step: HttpTap | HttpTransform, receiver: Receiver) -> None:
    headers = {"idempotency-key": "mine", "X-Own": "a"}
    await step.run(call(f"{receiver.url}/x", "t", method="PUT", headers=headers, body="b"))
    (got,) = receiver.at("/x")
    assert (got.method, got.body, got.key, got.all("X-Own")) == ("PUT", b"b", "mine", ["a"])


async def test_a_status_beside_success_fails(
    step: HttpTap | HttpTransform, receiver: Receiver
) -> None:
    receiver.script("/x", Reply(418, "no, s3cret"))
    with pytest.raises(WriteFailed) as caught:
        await step.run(call(f"{receiver.url}/x"))
    assert caught.value.message == f"POST {receiver.url}/x answered 418: no, ***"
    await step.run(call(f"{receiver.url}/x", success=[418]))


async def test_a_receiver_may_ask_for_a_pause(
    step: HttpTap | HttpTransform, receiver: Receiver
) -> None:
    receiver.script("/x", Reply(503, headers={"Retry-After": "7"}))
    with pytest.raises(RetryAfter) as caught:
        await step.run(call(f"{receiver.url}/x"))
    assert caught.value.seconds == 7


async def test_no_answer_is_told(step: HttpTap | HttpTransform, receiver: Receiver) -> None:
    receiver.script("/x", Reply(delay_s=60.0))
    step._requests._sender._timeout_s = SHORT_S
    with pytest.raises(NoAnswer, match=r"no answer within 0\.5 s"):
        await step.run(call(f"{receiver.url}/x"))


async def test_no_address_is_refused(step: HttpTap | HttpTransform) -> None:
    with pytest.raises(Refused):
        await step.run(call(""))


@pytest.mark.parametrize(
    ("reply", "data"),
    [
        (Reply(body='{"n": 12345678901234567890}', headers=JSON), {"n": 12345678901234567890}),
        (Reply(body="null", headers={"Content-Type": "application/problem+json"}), None),
        (Reply(body='{"n": 1}', headers={"Content-Type": "text/plain"}), '{"n": 1}'),
        (Reply(204), ""),
        (
            Reply(body="\xe4", headers={"Content-Type": "text/plain; charset=utf-8"}),
            "ä",
        ),
    ],
    ids=["json", "another-json", "text", "empty", "umlaut"],
)
async def test_the_answer_becomes_the_data(
    transform: HttpTransform, receiver: Receiver, reply: Reply, data: Any
) -> None:
    receiver.script("/x", reply)
    assert await transform.run(call(f"{receiver.url}/x")) == data


async def test_what_is_packed_unasked_is_unpacked(
    transform: HttpTransform, receiver: Receiver
) -> None:
    packed = gzip.compress(b'{"n": 1}')
    receiver.script("/x", Reply(body=packed, headers={**JSON, "Content-Encoding": "gzip"}))
    assert await transform.run(call(f"{receiver.url}/x")) == {"n": 1}


async def test_json_that_is_none_fails(transform: HttpTransform, receiver: Receiver) -> None:
    receiver.script("/x", Reply(body="{nope", headers=JSON))
    with pytest.raises(WriteFailed, match="answered 200 with a body that is no JSON"):
        await transform.run(call(f"{receiver.url}/x"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="x" * (LIMIT + 1)),
        Reply(body=gzip.compress(b"x" * 100_000), headers={"Content-Encoding": "gzip"}),
    ],
    ids=["plain", "packed"],
)
async def test_an_answer_beyond_the_limit_is_refused(
    transform: HttpTransform, receiver: Receiver, reply: Reply
) -> None:
    receiver.script("/x", reply)
    with pytest.raises(Refused, match=r"more than engine\.packet_limit \(200 bytes\)"):
        await transform.run(call(f"{receiver.url}/x"))


async def test_a_packing_that_nobody_knows_fails(
    transform: HttpTransform, receiver: Receiver
) -> None:
    receiver.script("/x", Reply(body="x", headers={"Content-Encoding": "br"}))
    with pytest.raises(WriteFailed, match="was not asked for"):
        await transform.run(call(f"{receiver.url}/x"))
