"""Packets of an older version, in a process that runs another: its secrets, its folder, its steps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipo import collector
from pipo.connectors import registry as connectors
from pipo.errors import InvalidState
from pipo.journal import versions
from pipo_runner.pipeline import process as process_module
from tests.unit.runner.pipeline.test_process import House

BODY = """
secrets: { token: env:OLDER_ONE }
input: { via: push }
nodes:
  shape: { from: input, transform: map, with: { data: { said: "${secrets.token}" } } }
output: { from: shape, to: file, with: { path: ./out.jsonl } }
"""
NEWER = BODY.replace("OLDER_ONE", "NEWER_ONE")


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(collector, "calm", lambda: None)
    monkeypatch.setenv("OLDER_ONE", "the-first-value")
    monkeypatch.setenv("NEWER_ONE", "the-second-value")
    made = House(tmp_path)
    monkeypatch.setattr(process_module, "serve", made.serve)
    yield made
    await made.tidy()


async def held(house: House) -> str:
    """A packet of the first version, which a suspension left in a pause."""
    await house.start(BODY)
    await house.process.pause("")
    packet = await house.push()
    await house.end()
    return packet


def said(file: Path) -> list[str]:
    return [json.loads(line)["data"]["said"] for line in file.read_text().splitlines()]


async def test_a_packet_sees_the_secrets_of_its_version(house: House) -> None:
    older = await held(house)
    await house.start(NEWER)
    newer = await house.push()
    await house.process.resume()
    assert [await house.settled(one) for one in (older, newer)] == ["delivered"] * 2
    # A value of an older version is masked as any other: the journal's own words hide both.
    assert house.process.masked("the-first-value the-second-value") == "*** ***"
    assert said(house.folder / "out.jsonl") == ["the-first-value", "the-second-value"]
    await house.end()


async def test_a_secret_that_only_an_older_version_declares_is_still_needed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packets are not sent on without it; nothing is written, and the next start finds it."""
    older = await held(house)
    monkeypatch.delenv("OLDER_ONE")
    with pytest.raises(InvalidState, match=r"packets of v1 wait, and .*OLDER_ONE is not set"):
        await house.start(NEWER)
    found = await versions.history(house.journal.rows)
    assert [one.version for one in found.versions] == [1]
    await house.kill()
    await house.tidy()
    monkeypatch.setenv("OLDER_ONE", "the-first-value")
    await house.start(NEWER)
    await house.process.resume()
    assert await house.settled(older) == "delivered"
    await house.end()


async def test_a_packet_is_written_where_its_version_began(house: House) -> None:
    """The file has moved: its paths mean others now, and what was under way is not split."""
    older = await held(house)
    house.file = house.folder / "elsewhere" / "people.pipo"
    house.file.parent.mkdir()
    process = await house.start(BODY)
    assert process.version == 2
    newer = await house.push()
    await process.resume()
    assert [await house.settled(one) for one in (older, newer)] == ["delivered"] * 2
    for folder in (house.folder, house.file.parent):
        assert said(folder / "out.jsonl") == ["the-first-value"]
    found = (await versions.history(house.journal.rows)).versions
    assert [(one.version, one.reason, one.folder) for one in found] == [
        (2, "file moved", str(house.file.parent)),
        (1, "first start", str(house.folder)),
    ]
    await house.end()


class Watched:
    """A step that notes that it was opened."""

    def __init__(self, step: Any, opened: list[str], name: str) -> None:
        self._step, self._opened, self._name = step, opened, name

    def __getattr__(self, key: str) -> Any:
        return getattr(self._step, key)

    async def open(self) -> None:
        self._opened.append(self._name)
        await self._step.open()


async def test_an_apply_opens_what_its_nodes_need(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    build = connectors.build_step
    monkeypatch.setattr(
        connectors,
        "build_step",
        lambda role, name, context: Watched(build(role, name, context), opened, name),
    )
    process = await house.start(BODY)
    source = house.file.read_text().replace(
        "output: { from: shape",
        "  note: { from: shape, tap: file, with: { path: ./notes.jsonl } }\noutput: { from: note",
    )
    assert (await process.applying.apply(source, {}, by="", reason="")).version == 2
    assert (process.version, opened) == (2, ["file"])
    assert await house.settled(await house.push()) == "delivered"
    assert (house.folder / "notes.jsonl").read_text().count("\n") == 1
    await house.end()


async def test_rules_of_an_input_change_at_once(house: House) -> None:
    """Edge 350."""
    process = await house.start(BODY)
    await house.push()
    source = house.file.read_text().replace("via: push", 'via: push, validate: ["data.n > 1"]')
    await process.applying.apply(source, {}, by="", reason="")
    with pytest.raises(Exception, match=r"the rule 'data\.n > 1' does not hold"):
        await house.push()
    await process.applying.rollback("1", by="")
    assert await house.settled(await house.push()) == "delivered"
    await house.end()


async def test_a_pipeline_that_drains_takes_no_version(house: House) -> None:
    """Edge 351: a paused one does."""
    process = await house.start(BODY)
    await process.pause("")
    source = house.file.read_text() + "buffer: { max: 1 }\n"
    assert (await process.applying.apply(source, {}, by="", reason="")).changed is True
    # The limit of the version in force counts from now on.
    await house.push()
    with pytest.raises(Exception, match=r"buffer full \(1 packets pending\)"):
        await house.push()
    running = house.running()
    process.ask_to_stop(now=False)
    with pytest.raises(InvalidState, match="is draining"):
        await process.applying.rollback("1", by="")
    assert await running == 0
