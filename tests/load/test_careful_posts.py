"""The judge of the loss tests can find fault: its negative controls, which need no engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.load import careful_posts
from tests.load.careful_posts import Ledger, faults, send


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ({"a": 1, "b": 1}, []),
        ({"a": 1, "b": 1, "cut": 1}, []),
        ({"a": 1}, ["b was acknowledged and is no row"]),
        ({"a": 1, "b": 2}, ["b is 2 rows"]),
        ({"a": 1, "b": 1, "cut": 2}, ["cut is 2 rows"]),
        ({"a": 1, "b": 1, "c": 1}, ["c is a row that nobody sent"]),
    ],
    ids=["all there", "cut off and there", "lost", "doubled", "cut off and doubled", "foreign"],
)
def test_the_judge(rows: dict[str, int], wrong: list[str]) -> None:
    assert faults({"a", "b"}, {"cut"}, rows) == wrong


@asynccontextmanager
async def server(answers: dict[str, list[int | None]]) -> AsyncIterator[int]:
    """A port that gives each key its answers in turn, then 202; None cuts the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            key = json.loads(await reader.readexactly(length))["email"]
            status = answers[key].pop(0) if answers.get(key) else 202
            if status is None:
                break
            body = json.dumps({"packet_id": f"P-{key}", "state": "accepted"}).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            writer.write(body)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_the_sender_tells_accepted_refused_and_unknown_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(careful_posts, "PAUSE_S", 0.0)
    ledger = Ledger(tmp_path / "ledger")
    keys = [f"k{number}" for number in range(20)]
    async with server({"k3": [503, 503], "k5": [None], "k7": [502]}) as port:
        tally = await send(keys, port=port, path="/in/x", connections=4, ledger=ledger, limit_s=20)
    ledger.close()
    assert tally.unknown == {"k5", "k7"}
    assert tally.refused == 2
    assert ledger.read() == {key: f"P-{key}" for key in keys if key not in ("k5", "k7")}


async def test_any_other_answer_ends_the_load(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    async with server({"k1": [413]}) as port:
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await send(["k1"], port=port, path="/", connections=1, ledger=ledger, limit_s=20)
    ledger.close()
    assert ledger.read() == {}
