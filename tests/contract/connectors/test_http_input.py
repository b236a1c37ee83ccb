"""The http input: every status and body of edges 22 to 40 and 88 to 99; report R10."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
from collections.abc import Sequence
from typing import Any, cast

import aiohttp
import pytest

from pipo.connectors import registry
from pipo.connectors.contract import (
    Arrival,
    HttpAnswer,
    HttpInput,
    HttpRequest,
    InputSpec,
    Settlement,
    Taken,
)
from pipo.connectors.http import listener
from pipo.connectors.http.gathering import Gathering
from pipo.errors import BadRequest, Conflict, Unavailable
from pipo.home import ports
from tests.contract.connectors.intake import FakeIntake, input_context
from tests.stack import free_ports


def spec(
    name: str = "input", format: str = "json", respond_status: int = 422, **settings: Any
) -> InputSpec:
    return InputSpec(name, settings, format, respond_status)


def made(intake: FakeIntake, *specs: InputSpec, **context: Any) -> HttpInput:
    return cast(HttpInput, registry.build_inputs("http", specs, input_context(intake, **context)))


def request(
    body: bytes | str = b"{}", path: str = "/", method: str = "POST", **headers: str
) -> HttpRequest:
    raw = body.encode() if isinstance(body, str) else body
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return HttpRequest(method, path, "q=1", named, "192.0.2.7", raw)


def body(answer: HttpAnswer) -> Any:
    return json.loads(answer.body)


async def test_a_packet_is_answered_202_with_its_id() -> None:
    intake = FakeIntake()
    answer = await made(intake, spec(path="/signups")).answer(request('{"n": 1}', "/signups"))
    assert (answer.status, body(answer)) == (202, {"packet_id": "p1", "state": "accepted"})
    (arrival,) = intake.arrivals
    assert (arrival.input, arrival.data, arrival.trigger) == ("input", {"n": 1}, "http")
    assert arrival.source == "192.0.2.7"


@pytest.mark.parametrize(
    ("path", "asked", "found"),
    [
        ("/a", "/a", True),
        ("/a", "/a/", True),
        ("/a/", "/a", True),
        ("/", "/", True),
        ("/", "//", True),
        ("/a", "/a/b", False),
        ("/a", "/A", False),
        ("/", "/a", False),
    ],
)
def test_routes(path: str, asked: str, found: bool) -> None:
    early = made(FakeIntake(), spec(path=path)).early(request(path=asked))
    assert (early is None) is found


async def test_an_unknown_path_lists_the_routes() -> None:
    inputs = made(FakeIntake(), spec("a", path="/a"), spec("b", path="/b", method="PUT"))
    answer = await inputs.answer(request(path="/c"))
    assert answer.status == 404
    assert body(answer) == {
        "error": "no input at /c",
        "hint": "this pipeline takes: POST /a, PUT /b",
    }
    assert sorted(inputs.routes().values()) == ["POST /a", "PUT /b"]


async def test_a_wrong_method_is_405_with_allow() -> None:
    intake = FakeIntake()
    inputs = made(intake, spec("a", path="/a"), spec("b", path="/a", method="PUT"))
    answer = await inputs.answer(request(path="/a", method="GET"))
    assert answer.status == 405
    assert dict(answer.headers)["Allow"] == "POST, PUT"
    assert (await inputs.answer(request(path="/a", method="PUT"))).status == 202
    assert intake.arrivals[0].input == "b"


# ── auth ─────────────────────────────────────────────────────────────────────

TOKEN = {"header": "X-Token", "equals": "geheim-ü"}


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("geheim-ü".encode().decode("latin-1"), 202),
        ("geheim", 401),
        ("", 401),
        ("geheim-ü ".encode().decode("latin-1"), 401),
    ],
)
async def test_a_header_token_must_be_exact(shown: str, status: int) -> None:
    inputs = made(FakeIntake(), spec(auth=TOKEN))
    assert (await inputs.answer(request(x_token=shown))).status == status


async def test_a_missing_token_names_the_header_before_the_body_is_read() -> None:
    early = made(FakeIntake(), spec(auth=TOKEN)).early(request())
    assert early is not None
    assert early.status == 401
    assert body(early)["hint"] == "send it in the header X-Token"


SECRET = "topsecret-1"
BODY_A = '{"action": "opened",  "n": 1.0, "name": "Zoë"}'.encode()
GOOD_A = "9fad829d962c8b4002754aa372f1899c4b695383dbad87c4e1090fa1ba4bbffa"
GITHUB = {"hmac": {"header": "X-Hub-Signature-256", "secret": SECRET}}


@pytest.mark.parametrize(
    ("raw", "shown", "status"),
    [
        (BODY_A, f"sha256={GOOD_A}", 202),
        (BODY_A, GOOD_A.upper(), 202),
        (BODY_A, f"  SHA256={GOOD_A} ", 202),
        (BODY_A, "fa647f156d987ffc95a5c3a7a0550fd7b5d2e9e17a9f500f7231a8cb656cb6c5", 401),
        (BODY_A, "garbage ü", 401),
        (BODY_A, "", 401),
        (BODY_A, f"sha1={GOOD_A}", 401),
        (b'{"a":1}', "14220a5d1a8660550c0bcfe70cfefff4e921bd1009d29ac825b99aac47e01d18", 202),
        (b'{"a":1}\n', "14220a5d1a8660550c0bcfe70cfefff4e921bd1009d29ac825b99aac47e01d18", 401),
        (b'{"a":1}\n', "3a7debbde5af106bc9d7c8ec74a37359a383306f590cd7e6f445c34f51a46093", 202),
    ],
)
async def test_a_signature_covers_the_bytes_received(raw: bytes, shown: str, status: int) -> None:
    intake = FakeIntake()
    inputs = made(intake, spec(auth=GITHUB))
    answer = await inputs.answer(request(raw, x_hub_signature_256=shown))
    assert answer.status == status
    assert len(intake.arrivals) == (status == 202)


async def test_any_flipped_bit_is_refused() -> None:
    """Of the body and of the signature, each bit by itself."""
    intake = FakeIntake()
    inputs = made(intake, spec(auth=GITHUB, format="bytes"))
    for n in range(8 * len(BODY_A)):
        changed = bytearray(BODY_A)
        changed[n // 8] ^= 1 << n % 8
        shown = f"sha256={GOOD_A}"
        answer = await inputs.answer(request(bytes(changed), x_hub_signature_256=shown))
        assert answer.status == 401
    for n in range(4 * len(GOOD_A)):
        digit = f"{int(GOOD_A[n // 4], 16) ^ 1 << n % 4:x}"
        shown = f"sha256={GOOD_A[: n // 4]}{digit}{GOOD_A[n // 4 + 1 :]}"
        answer = await inputs.answer(request(BODY_A, x_hub_signature_256=shown))
        assert answer.status == 401
    assert intake.arrivals == []


async def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's comparison decides, and nothing before it: whatever it says is the answer."""
    compared: list[tuple[bytes, bytes]] = []
    inputs = made(FakeIntake(), spec(auth={**TOKEN, **GITHUB}))
    for verdict, status in ((True, 202), (False, 401)):

        def judged(left: bytes, right: bytes, verdict: bool = verdict) -> bool:
            compared.append((left, right))
            return verdict

        monkeypatch.setattr(hmac, "compare_digest", judged)
        shown = {"x_token": "x", "x_hub_signature_256": "00"}
        assert (await inputs.answer(request(**shown))).status == status
    assert compared[0] == (b"x", "geheim-ü".encode())
    assert compared[1][0] == b"00"
    assert len(compared) == 3


async def test_a_long_body_is_signed_too() -> None:
    intake = FakeIntake()
    inputs = made(intake, spec(auth=GITHUB, format="text"), packet_limit=10**6)
    raw = "x" * 500_000
    good = hmac.new(SECRET.encode(), raw.encode(), hashlib.sha256).hexdigest()
    assert (await inputs.answer(request(raw, x_hub_signature_256=good))).status == 202
    assert (await inputs.answer(request(raw + "x", x_hub_signature_256=good))).status == 401
    assert intake.data == [raw]


async def test_sha1_and_a_token_together() -> None:
    signed = {"header": "X-Sig", "secret": "s", "algorithm": "sha1"}
    inputs = made(FakeIntake(), spec(auth={"header": "X-T", "equals": "t", "hmac": signed}))
    good = "sha1=" + hmac.new(b"s", b"{}", hashlib.sha1).hexdigest()
    assert (await inputs.answer(request(x_t="t", x_sig=good))).status == 202
    assert (await inputs.answer(request(x_t="t"))).status == 401
    assert (await inputs.answer(request(x_sig=good))).status == 401


async def test_a_bad_signature_hides_a_bad_body() -> None:
    answer = await made(FakeIntake(), spec(auth=GITHUB)).answer(request("{"))
    assert answer.status == 401
    assert "X-Hub-Signature-256" in body(answer)["hint"]


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"header": "X"},
        {"header": "X", "equals": ""},
        {"header": "X", "equals": None},
        {"equals": "x"},
        {"hmac": {"header": "X"}},
        {"hmac": {"header": "X", "secret": ""}},
    ],
)
def test_auth_that_renders_to_nothing_never_opens(auth: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="renders to nothing"):
        made(FakeIntake(), spec(auth=auth))


# ── bodies ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "format"), [("{", "json"), ("", "json"), (b"\xff", "text"), ("a\n", "csv")]
)
async def test_a_body_that_does_not_parse_is_400_and_leaves_nothing(
    raw: bytes | str, format: str
) -> None:
    intake = FakeIntake()
    answer = await made(intake, spec(format=format)).answer(request(raw))
    assert answer.status == 400
    assert set(body(answer)) == {"error", "hint"}
    assert intake.arrivals == []


async def test_a_body_beyond_the_limit_is_413() -> None:
    answer = await made(FakeIntake(), spec(format="text")).answer(request("x" * 1001))
    assert answer.status == 413
    assert "engine.packet_limit" in body(answer)["hint"]


async def test_a_long_body_is_parsed_too() -> None:
    intake = FakeIntake()
    inputs = made(intake, spec(format="text"), packet_limit=10**6)
    assert (await inputs.answer(request("x" * 500_000))).status == 202
    assert intake.data == ["x" * 500_000]


async def test_a_compressed_body_is_refused_and_kept_as_bytes() -> None:
    coded = request(b"\x1f\x8b", content_encoding="gzip", content_type="application/gzip")
    answer = await made(FakeIntake(), spec()).answer(coded)
    assert (answer.status, body(answer)["error"]) == (400, "the body is coded with gzip")
    intake = FakeIntake()
    assert (await made(intake, spec(format="bytes")).answer(coded)).status == 202
    assert intake.data[0]["content_type"] == "application/gzip"


@pytest.mark.parametrize("format", ["json", "bytes"])
async def test_a_body_compressed_for_the_way_is_refused(format: str) -> None:
    intake = FakeIntake()
    inputs = made(intake, spec(format=format))
    answer = await inputs.answer(request("{}", transfer_encoding="gzip, chunked"))
    assert (answer.status, body(answer)["error"]) == (400, "the body is sent as gzip, chunked")
    assert (await inputs.answer(request("{}", transfer_encoding="Chunked"))).status == 202
    assert len(intake.data) == 1


# ── statuses after intake ────────────────────────────────────────────────────


async def test_a_rejection_has_its_own_status_and_rule() -> None:
    inputs = made(FakeIntake(lambda arrival: "reject"), spec(respond_status=418))
    answer = await inputs.answer(request())
    assert answer.status == 418
    assert body(answer) == {
        "packet_id": "p1",
        "state": "rejected",
        "error": "too young",
        "rule": "age",
    }


async def test_a_full_buffer_is_503_with_retry_after() -> None:
    answer = await made(FakeIntake(lambda arrival: "refuse"), spec()).answer(request())
    assert answer.status == 503
    assert dict(answer.headers)["Retry-After"] == "5"
    assert body(answer) == {
        "error": "buffer full (2 packets pending)",
        "hint": "raise `buffer.max`",
    }


async def test_a_journal_that_fails_is_an_answer_not_an_exception() -> None:
    intake = FakeIntake()
    intake.failure = Unavailable("the journal is closed", hint="later")
    answer = await made(intake, spec()).answer(request())
    assert (answer.status, body(answer)["error"]) == (503, "the journal is closed")


def by_letter(verdicts: str) -> FakeIntake:
    """Judges record n by the n-th letter: accept, reject or refuse."""
    words = {"a": "accept", "r": "reject", "x": "refuse"}
    seen = iter(verdicts)
    return FakeIntake(lambda arrival: words[next(seen)])


@pytest.mark.parametrize(
    ("verdicts", "status", "states"),
    [
        ("a", 202, ["accepted"]),
        ("aa", 202, ["accepted"] * 2),
        ("ar", 422, ["accepted", "rejected"]),
        ("rr", 422, ["rejected"] * 2),
        ("ax", 503, ["accepted"]),
        ("arx", 503, ["accepted", "rejected"]),
        ("rx", 503, None),
        ("x", 503, None),
        ("axa", 503, ["accepted"]),
    ],
)
async def test_csv(verdicts: str, status: int, states: list[str] | None) -> None:
    inputs = made(by_letter(verdicts), spec(format="csv"))
    answer = await inputs.answer(request("n\n" + "1\n" * len(verdicts)))
    seen = body(answer)
    assert answer.status == status
    if states is None:
        assert set(seen) == {"error", "hint"}
    else:
        assert [packet["state"] for packet in seen["packets"]] == states
        assert ("error" in seen) is (status == 503)
    assert ("Retry-After" in dict(answer.headers)) is (status == 503)


async def test_csv_stops_at_the_first_refusal() -> None:
    intake = FakeIntake(lambda arrival: "refuse" if len(intake.arrivals) == 70 else "accept")
    answer = await made(intake, spec(format="csv")).answer(request("n\n" + "1\n" * 200))
    assert answer.status == 503
    assert len(body(answer)["packets"]) == 70


async def test_records_of_a_wide_header_are_taken_in_small_groups() -> None:
    """A column's name stands in every record, so few of them may make a large commit."""
    groups: list[int] = []

    class Counting(FakeIntake):
        async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
            groups.append(len(arrivals))
            return await super().take(arrivals)

    intake = Counting()
    names = ",".join(f"{n:0300d}" for n in range(1000))
    inputs = made(intake, spec(format="csv"), packet_limit=10**6)
    answer = await inputs.answer(request(f"{names}\n" + ("," * 999 + "\n") * 20))
    assert (answer.status, len(body(answer)["packets"])) == (202, 20)
    assert groups == [4] * 5


async def test_an_answer_ends_its_line() -> None:
    inputs = made(FakeIntake(lambda arrival: "reject" if arrival.data else "accept"), spec())
    for sent in (b"[]", b"[1]", b"["):
        assert (await inputs.answer(request(sent))).body.endswith(b"}\n")


# ── respond: delivered ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "status", "seen"),
    [
        (Settlement("delivered"), 200, {"state": "delivered"}),
        (Settlement("filtered"), 200, {"state": "filtered"}),
        (Settlement("dead_lettered", "no"), 502, {"state": "dead_lettered", "error": "no"}),
        (Settlement("escalated", "ask"), 202, {"state": "escalated", "error": "ask"}),
        (Settlement("verifying"), 202, {"state": "accepted"}),
    ],
)
async def test_respond_delivered(end: Settlement, status: int, seen: dict[str, str]) -> None:
    intake = FakeIntake()
    intake.ends["p1"] = end
    inputs = made(intake, spec(respond="delivered", timeout="1.5s"))
    answer = await inputs.answer(request())
    assert (answer.status, body(answer)) == (status, {"packet_id": "p1", **seen})
    assert intake.waits[0][1] == pytest.approx(1.5, abs=0.1)


async def test_respond_delivered_does_not_wait_for_a_rejection() -> None:
    intake = FakeIntake(lambda arrival: "reject")
    answer = await made(intake, spec(respond="delivered")).answer(request())
    assert (answer.status, intake.waits) == (422, [])


async def test_respond_delivered_of_a_csv_is_502_when_one_died() -> None:
    intake = FakeIntake()
    intake.ends = {"p1": Settlement("delivered"), "p2": Settlement("dead_lettered", "no")}
    inputs = made(intake, spec(format="csv", respond="delivered", timeout="10ms"))
    answer = await inputs.answer(request("n\n1\n2\n3\n"))
    assert answer.status == 502
    assert [packet["state"] for packet in body(answer)["packets"]] == [
        "delivered",
        "dead_lettered",
        "accepted",
    ]


async def test_a_close_releases_who_waits() -> None:
    inputs = made(FakeIntake(), spec(respond="delivered", timeout="1h"))
    waiting = asyncio.ensure_future(inputs.answer(request()))
    await asyncio.sleep(0)
    await inputs.close()
    answer = await asyncio.wait_for(waiting, 60)
    assert (answer.status, body(answer)["state"]) == (202, "accepted")


async def test_a_close_waits_for_intake_and_refuses_what_comes_after() -> None:
    intake = FakeIntake()
    intake.hold = asyncio.Event()
    inputs = made(intake, spec())
    first = asyncio.ensure_future(inputs.answer(request()))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(inputs.close())
    await asyncio.sleep(0)
    late = await inputs.answer(request())
    assert (late.status, body(late)["error"]) == (503, "the pipeline is stopping")
    assert not closing.done()
    intake.hold.set()
    await asyncio.wait_for(closing, 60)
    assert (await first).status == 202


# ── a port of its own ────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUESTS_GRACE_S", 0.05)


async def test_listen_serves_the_same_answers() -> None:
    intake = FakeIntake()
    port = free_ports(1)
    inputs = made(
        intake,
        spec("a", path="/a b", listen=port, auth=GITHUB),
        spec("b", path="/b", format="text", method="GET", listen=port),
    )
    await inputs.open()
    await inputs.open()
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as client:
        signed = {"X-Hub-Signature-256": GOOD_A}
        async with client.post(
            f"{url}/a%20b/?x=1", data=BODY_A, headers=signed, expect100=True
        ) as answer:
            assert (answer.status, await answer.json()) == (
                202,
                {"packet_id": "p1", "state": "accepted"},
            )
            assert answer.headers["Server"] == "pipo"

        async def pieces() -> Any:
            for n in range(0, len(BODY_A), 7):
                yield BODY_A[n : n + 7]

        async with client.post(f"{url}/a%20b", data=pieces(), headers=signed) as answer:
            assert answer.status == 202
        async with client.get(f"{url}/b") as answer:
            assert answer.status == 202
        async with client.delete(f"{url}/b") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        async with client.post(f"{url}/nope", data=b"x" * 500) as answer:
            assert answer.status == 404
        async with client.post(f"{url}/a%20b", data=b"x" * 1001) as answer:
            assert answer.status == 413

        async def endless() -> Any:
            while True:
                yield b"x" * 500

        async with client.post(f"{url}/a%20b", data=endless()) as answer:
            assert answer.status == 413
    await inputs.close()
    await inputs.close()
    assert [arrival.source for arrival in intake.arrivals] == ["127.0.0.1"] * 3
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_requests_of_one_turn_are_taken_together() -> None:
    """And one that fails for all of them is an answer to each, after which the next is taken."""
    groups: list[int] = []

    class Counting(FakeIntake):
        async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
            groups.append(len(arrivals))
            return await super().take(arrivals)

    intake = Counting(lambda arrival: "reject" if arrival.data == 3 else "accept")
    gathering = Gathering(made(intake, spec()))

    async def all_of(count: int) -> list[int]:
        arrivals = [Arrival("input", n, "http", "192.0.2.7") for n in range(count)]
        return [a.status for a in await asyncio.gather(*map(gathering.answer, arrivals))]

    assert await all_of(5) == [202, 202, 202, 422, 202]
    assert intake.data == [0, 1, 2, 3, 4]
    intake.failure = Unavailable("the journal is closed", hint="later")
    assert await all_of(2) == [503, 503]
    intake.failure = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        await all_of(2)
    intake.failure = None
    assert await all_of(1) == [202]
    assert groups == [5, 2, 2, 1]


async def test_bodies_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BODIES_LIMIT", 1)
    intake = FakeIntake()
    intake.hold = asyncio.Event()
    port = free_ports(1)
    inputs = made(intake, spec(format="text", listen=port))
    await inputs.open()
    async with aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{port}/"
        first = asyncio.ensure_future(client.post(url, data="x" * 600))
        await asyncio.wait_for(intake.reached.wait(), 60)
        async with client.post(url, data="x" * 600) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        intake.hold.set()
        assert (await first).status == 202
        async with client.post(url, data="x" * 600) as answer:
            assert answer.status == 202
    await inputs.close()


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BODY_TIMEOUT_S", 0.02)
    port = free_ports(1)
    inputs = made(FakeIntake(), spec(listen=port))
    await inputs.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 60)
    writer.close()
    await inputs.close()


async def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        inputs = made(FakeIntake(), spec(listen=port))
        with pytest.raises(Conflict) as caught:
            await inputs.open()
        assert inputs.port is None
        await inputs.close()
    assert caught.value.message.startswith(
        f"port {port} on 127.0.0.1 is taken by pid {os.getpid()} "
    )
    assert f"--listen {port + 1}" in caught.value.hint


async def test_a_port_that_was_reserved_is_served_to_those_who_wait_there_already() -> None:
    port = free_ports(1)
    reserved = ports.reserve(port, None)
    # The file names another port, which the start has put aside.
    inputs = made(FakeIntake(), spec(listen=free_ports(1)), listening=reserved)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    await inputs.open()
    assert b" 202 " in await asyncio.wait_for(reader.readline(), 60)
    assert inputs.port == port
    writer.close()
    await inputs.close()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("/people", 202),
        ("/in/p/people", 202),
        ("/in/p/people/", 202),
        ("/in/p/in/p/odd", 202),
        ("/in/p/odd", 202),
        ("/in/p", 405),
        ("/in/q/people", 404),
        ("/in/py/people", 404),
    ],
)
async def test_a_port_of_its_own_takes_the_paths_of_a_gateway_too(asked: str, status: int) -> None:
    port = free_ports(1)
    specs = [
        spec("a", path="/people", listen=port),
        spec("odd", path="/in/p/odd", listen=port),
        spec("root", path="/", method="PUT", listen=port),
    ]
    inputs = made(FakeIntake(), *specs)
    await inputs.open()
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"http://127.0.0.1:{port}{asked}", data="{}") as answer,
    ):
        assert answer.status == status
    await inputs.close()


def test_two_ports_are_refused() -> None:
    with pytest.raises(BadRequest, match="several ports: 8001, 8002"):
        made(FakeIntake(), spec("a", listen=8001), spec("b", path="/b", listen=8002))
