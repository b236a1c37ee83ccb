"""What a call's end means to the packet, and which code runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors.contract import ConnectorError, Context, Refused, StepCall, WriteFailed
from pipo.functions.calling import Call, FunctionFailed
from pipo.functions.code import Code
from pipo.lang.texts import Texts
from pipo_runner.pipeline.definition.versions import Edition
from pipo_runner.pipeline.steps.functions import TEXT_CHARS, Functions, FunctionStep
from tests.unit.runner.pipeline.rig import PLAIN, pipeline_of

CODE = Code("v1", "./x.fn.py", {"./x.fn.py": ""}, Path("/"))
SECRET = "s3cr3t-value"


class Answers:
    """A pool that answers so; `asked` is the last call."""

    def __init__(self, answer: bytes | FunctionFailed) -> None:
        self._answer = answer
        self.asked: Call

    async def run(self, call: Call) -> bytes:
        self.asked = call
        if isinstance(self._answer, FunctionFailed):
            raise self._answer
        return self._answer


def step(pool: Answers, *, wants_result: bool = True) -> FunctionStep:
    mask = lambda text: text.replace(SECRET, "***")  # noqa: E731
    return FunctionStep(pool, CODE, "f", wants_result, mask)  # type: ignore[arg-type]


def call(data: Any = None) -> StepCall:
    return StepCall("U1", "n", data, {"packet_id": "U1"}, {})


async def test_a_call_carries_the_packet_and_its_result_is_read() -> None:
    pool = Answers(b'{"n":100000000000000000000000}')
    assert await step(pool).run(call({"n": 1})) == {"n": 10**23}
    assert (pool.asked.data, pool.asked.meta) == (b'{"n":1}', {"packet_id": "U1"})
    assert (pool.asked.caller.node, pool.asked.caller.packet) == ("n", "U1")
    assert pool.asked.wants_result


async def test_a_tap_has_no_result() -> None:
    pool = Answers(b"")
    assert await step(pool, wants_result=False).run(call()) is None
    assert not pool.asked.wants_result


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (FunctionFailed("fn.f raised it"), WriteFailed, "fn.f raised it"),
        (FunctionFailed("too large", hopeless=True), Refused, "too large"),
        (
            b'{"1":1,"1":2}',
            WriteFailed,
            "fn.f returned what JSON cannot hold: the key '1' stands twice in one object",
        ),
    ],
)
async def test_what_a_failure_means(
    answer: bytes | FunctionFailed, kind: type[ConnectorError], told: str
) -> None:
    with pytest.raises(kind) as caught:
        await step(Answers(answer)).run(call())
    assert type(caught.value) is kind
    assert caught.value.message == told


async def test_secrets_are_masked_before_a_text_is_cut() -> None:
    """R41."""
    long = "x" * (TEXT_CHARS - 4) + SECRET + "y" * 100
    with pytest.raises(WriteFailed) as caught:
        await step(Answers(FunctionFailed(long))).run(call())
    assert caught.value.message == "x" * (TEXT_CHARS - 4) + "***y…"


async def test_versions_with_the_same_texts_in_one_folder_share_what_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context("people", Path("/"), SystemClock(), lambda *_, **__: None)
    functions = Functions(context, concurrency=1)
    texts = Texts("source", {"./x.fn.py": "def f(data): return data"})
    pipeline = replace(pipeline_of(PLAIN), fn="./x.fn.py")
    first = Edition(1, pipeline, texts, Path("/a"))

    async def name_of(edition: Edition) -> str:
        pool = Answers(b"1")
        made = functions.step("transform", "fn.f", edition)
        monkeypatch.setattr(made, "_pool", pool)
        await made.run(call())
        return pool.asked.code.name

    name = await name_of(first)
    assert await name_of(replace(first, version=3)) == name
    assert await name_of(replace(first, folder=Path("/b"))) != name
    assert await name_of(replace(first, texts=Texts("source", {"./x.fn.py": ""}))) != name
