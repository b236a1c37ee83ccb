"""The http output against a real receiver (O034-O040, R23, R26, edges 109, 193-197)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Refused, RetryAfter, WriteFailed
from pipo.connectors.http.output import HttpOutput
from pipo.connectors.http.sending import KEEP_ALIVE_S
from tests.contract.connectors.contract import context, unit
from tests.receiver import Got, Receiver, Reply
from tests.stack import wait_for

SHORT_S = 0.5


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
async def output(tmp_path: Path) -> AsyncIterator[HttpOutput]:
    made = HttpOutput(context(tmp_path))
    await made.open({})
    yield made
    await made.close()


def hurry(output: HttpOutput) -> None:
    """A request has only `SHORT_S`; for tests whose receiver does not answer."""
    output._requests._sender._timeout_s = SHORT_S


async def send(output: HttpOutput, url: str, data: Any = None, key: str = "k1", **more: Any) -> Any:
    """The one result of one unit."""
    (result,) = (await output.write([unit(key, data, {"url": url, **more})], atomic=False)).results
    return result


def text_of(result: Any) -> str:
    assert isinstance(result, (WriteFailed, RetryAfter, Refused))
    return f"{result.message} ({result.hint})"


async def test_one_request_and_its_status(output: HttpOutput, receiver: Receiver) -> None:
    result = await send(output, f"{receiver.url}/x", {"n": 1}, headers={"X-Own": "a"})
    assert result == {"status": 200}
    (got,) = receiver.at("/x")
    assert (got.method, got.json, got.key) == ("POST", {"n": 1}, "k1")
    assert got.all("X-Own") == ["a"]
    assert got.all("Content-Type") == ["application/json"]
    assert got.all("Accept-Encoding") == ["identity"]
    assert got.all("User-Agent") == ["pipo"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method(output: HttpOutput, receiver: Receiver, method: str) -> None:
    assert await send(output, f"{receiver.url}/x", "t", method=method) == {"status": 200}
    (got,) = receiver.at("/x")
    assert (got.method, got.body) == (method, b"" if method in ("GET", "DELETE") else b"t")


async def test_a_url_arrives_as_it_was_written(output: HttpOutput, receiver: Receiver) -> None:
    await send(output, f"{receiver.url}/a%2Fb?x=%2B+%20&sig=A~b%3D")
    assert receiver.got[0].target == "/a%2Fb?x=%2B+%20&sig=A~b%3D"


async def test_the_same_key_twice_is_one_effect(output: HttpOutput, receiver: Receiver) -> None:
    for _ in range(2):
        await send(output, f"{receiver.url}/x", {"n": 1})
    assert receiver.keys("/x") == ["k1", "k1"]
    assert receiver.effects == 1


@pytest.mark.seed("O037")
async def test_an_own_key_is_sent_once(output: HttpOutput, receiver: Receiver) -> None:
    settings = {"url": f"{receiver.url}/x", "headers": {"idempotency-key": "order-7"}}
    assert output.explicit_key(settings) == "order-7"
    assert output.place(settings, "order-7") == "order-7"
    output.prepare({}, settings, "order-7")
    await output.write([unit("order-7", {}, settings)], atomic=False)
    assert receiver.got[0].all("Idempotency-Key") == ["order-7"]


@pytest.mark.parametrize(
    ("success", "status", "passes"),
    [([201, 409], 409, True), ([201], 200, False), ("2xx", 204, True), ([], 299, True)],
)
async def test_success_is_what_the_author_says(
    output: HttpOutput, receiver: Receiver, success: Any, status: int, passes: bool
) -> None:
    receiver.script("/x", Reply(status))
    result = await send(output, f"{receiver.url}/x", success=success)
    assert (result == {"status": status}) is passes
    if not passes:
        assert f"answered {status}" in text_of(result)


@pytest.mark.seed("O038")
async def test_a_refusal_shows_the_start_of_the_body(
    output: HttpOutput, receiver: Receiver
) -> None:
    receiver.script("/x", Reply(422, "no such  \n e-mail: \x00" + "x" * 5000))
    result = await send(output, f"{receiver.url}/x?a=1")
    assert isinstance(result, WriteFailed)
    start = f"POST {receiver.url}/x?a=1 answered 422: no such e-mail: xxx"
    assert result.message.startswith(start)
    assert result.message.endswith("x…")
    assert len(result.message) < len(start) + 200


async def test_a_body_is_masked_before_it_is_cut(tmp_path: Path, receiver: Receiver) -> None:
    secret = "s3cr3t-" + "z" * 50
    masked = HttpOutput(context(tmp_path, mask=lambda text: text.replace(secret, "***")))
    await masked.open({})
    receiver.script("/x", Reply(401, "a" * 170 + secret + "b" * 100))
    message = text_of(await send(masked, f"{receiver.url}/x"))
    await masked.close()
    assert "s3cr3t" not in message
    assert "aaa***bbb" in message


async def test_a_packed_body_is_named_and_not_shown(output: HttpOutput, receiver: Receiver) -> None:
    receiver.script("/x", Reply(500, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"}))
    assert "answered 500: a body in gzip" in text_of(await send(output, f"{receiver.url}/x"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(output: HttpOutput, receiver: Receiver, status: int) -> None:
    receiver.script("/x", Reply(status, headers={"Location": f"{receiver.url}/y"}))
    told = text_of(await send(output, f"{receiver.url}/x", headers={"Authorization": "t"}))
    assert f"answered {status}" in told
    assert f"it redirects to {receiver.url}/y; name that address in `url`" in told
    assert receiver.at("/y") == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_pause_is_handed_to_the_policy(
    output: HttpOutput, receiver: Receiver, status: int
) -> None:
    receiver.script("/x", Reply(status, headers={"Retry-After": "7"}))
    result = await send(output, f"{receiver.url}/x")
    assert isinstance(result, RetryAfter)
    assert result.seconds == 7.0
    assert "it asks for a pause of 7 s" in result.hint
    receiver.script("/x", Reply(status, headers={"Retry-After": "soon"}))
    assert isinstance(await send(output, f"{receiver.url}/x"), WriteFailed)


async def test_a_receiver_that_answers_too_late(output: HttpOutput, receiver: Receiver) -> None:
    receiver.script("/x", Reply(stores=True, delay_s=60.0))
    hurry(output)
    began = time.monotonic()
    told = text_of(await send(output, f"{receiver.url}/x"))
    assert SHORT_S <= time.monotonic() - began < 30.0
    assert told == (
        f"POST {receiver.url}/x failed: no answer within 0.5 s (whether it was received is not known)"
    )
    assert receiver.effects == 1


async def test_slow_requests_hold_up_no_other(tmp_path: Path, receiver: Receiver) -> None:
    made = HttpOutput(context(tmp_path))
    await made.open({})
    answers = threading.Event()

    def slowly(got: Got) -> Reply:
        answers.wait(60)
        return Reply()

    receiver.script("/slow", slowly)
    async with asyncio.TaskGroup() as tasks:
        slow = [
            tasks.create_task(send(made, f"{receiver.url}/slow", key=f"s{n}")) for n in range(60)
        ]
        assert await send(made, f"{receiver.url}/quick") == {"status": 200}
        assert not any(one.done() for one in slow)
        await asyncio.to_thread(wait_for, lambda: receiver.open_most >= 60)
        answers.set()
    assert all(one.result() == {"status": 200} for one in slow)
    await made.close()


async def test_a_long_answer_is_neither_kept_nor_waited_for(
    output: HttpOutput, receiver: Receiver
) -> None:
    receiver.script("/long", Reply(body=bytes(50 * 1024 * 1024)))
    receiver.script("/drip", Reply(body="drip" * 100, pace_s=0.3))
    began = time.monotonic()
    for path in ("/long", "/drip"):
        assert await send(output, f"{receiver.url}{path}") == {"status": 200}
    # All of a drip takes two minutes.
    assert time.monotonic() - began < 30.0
    receiver.script("/drip", Reply(500, body="drip" * 100, pace_s=0.3))
    assert "answered 500: d" in text_of(await send(output, f"{receiver.url}/drip"))


async def test_a_body_that_breaks_off_leaves_the_status(
    output: HttpOutput, receiver: Receiver
) -> None:
    receiver.script("/x", Reply(201, "half", drops="body"))
    assert await send(output, f"{receiver.url}/x") == {"status": 201}


async def test_connections_are_used_again_until_they_rest(
    output: HttpOutput, receiver: Receiver
) -> None:
    for _ in range(3):
        await send(output, f"{receiver.url}/x")
    assert len({got.connection for got in receiver.got}) == 1
    assert KEEP_ALIVE_S < 5.0  # what common servers allow


async def test_nobody_listens(output: HttpOutput) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/x"
    assert text_of(await send(output, url)) == (
        f"POST {url} failed: no connection: Connection refused"
        " (check that the receiver runs and the URL is right)"
    )


async def test_a_name_that_is_not_known(output: HttpOutput) -> None:
    told = text_of(await send(output, "http://nobody.invalid/x"))
    assert told.startswith("POST http://nobody.invalid/x failed: ")
    assert "the name of the host is not known" in told or "no answer within" in told


async def test_a_connection_that_is_dropped(output: HttpOutput, receiver: Receiver) -> None:
    receiver.script("/x", Reply(drops="before"))
    told = text_of(await send(output, f"{receiver.url}/x"))
    assert "the connection was closed without an answer" in told


async def test_who_answers_no_http(output: HttpOutput) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail ready\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told = text_of(await send(output, f"http://127.0.0.1:{port}/x"))
    assert "the answer is no HTTP" in told


async def test_who_speaks_no_tls(output: HttpOutput, receiver: Receiver) -> None:
    told = text_of(await send(output, f"https://127.0.0.1:{receiver.port}/x"))
    assert told.startswith(f"POST https://127.0.0.1:{receiver.port}/x failed: no TLS connection: ")


async def test_a_certificate_of_nobody(output: HttpOutput, tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=60)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(cert, key)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nothing may be sent")

    async with await asyncio.start_server(never, "127.0.0.1", 0, ssl=secure) as server:
        port = server.sockets[0].getsockname()[1]
        told = text_of(await send(output, f"https://127.0.0.1:{port}/x"))
    assert "the certificate is not trusted: self-signed certificate" in told.replace(
        "self signed", "self-signed"
    )


async def test_what_can_be_no_request_is_refused_before_it_is_sent(
    output: HttpOutput, receiver: Receiver
) -> None:
    url = f"{receiver.url}/x"
    for settings in ({"url": "nowhere"}, {"url": url, "headers": {"X": "a\nb"}}):
        with pytest.raises(Refused):
            output.prepare({}, settings, "k")
        (result,) = (await output.write([unit("k", {}, settings)], atomic=False)).results
        assert isinstance(result, Refused)
    assert receiver.got == []


async def test_large_bodies_arrive_whole(output: HttpOutput, receiver: Receiver) -> None:
    assert await send(output, f"{receiver.url}/x", "y" * (8 << 20)) == {"status": 200}
    assert len(receiver.got[0].body) == 8 << 20


async def test_a_cancelled_write_leaves_the_output_usable(
    output: HttpOutput, receiver: Receiver
) -> None:
    receiver.script("/slow", Reply(delay_s=20.0))
    task = asyncio.create_task(send(output, f"{receiver.url}/slow"))
    await asyncio.to_thread(wait_for, lambda: receiver.at("/slow"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await send(output, f"{receiver.url}/x") == {"status": 200}


async def test_it_opens_and_closes_twice(tmp_path: Path) -> None:
    made = HttpOutput(context(tmp_path))
    await made.close()
    for _ in range(2):
        await made.open({})
    for _ in range(2):
        await made.close()
