"""Every shell command of the README and the guides, run as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipo.connectors.registry import manifests
from pipo.lang.check import Source, check
from pipo.lang.document import plain
from pipo.lang.json_schema import compiled
from pipo.lang.load import load
from tests.docs.pages import PACKET_ID, ROOT, Block, Reader, blocks, checkout
from tests.stack import query, wait_for

VENV = Path(sys.prefix)
GUIDE = ROOT / "docs" / "getting-started.md"
README = ROOT / "README.md"
EDITOR = ROOT / "docs" / "editor.md"
RECIPES = ROOT / "docs" / "recipes.md"
CHAINS = ROOT / "docs" / "chains.md"
OBSERVING = ROOT / "docs" / "observing.md"
RECOVERING = ROOT / "docs" / "recovering.md"
VERSIONS = ROOT / "docs" / "versions.md"

# Blocks that something else runs, and what that is.
ELSEWHERE = {"make test": "this very run"}
# Pages that other tests go through, block by block.
OTHER_PAGES = {
    "docs/containers.md": ROOT / "tests" / "compose",
    "docs/functions.md": ROOT / "tests" / "docs" / "test_functions.py",
    "docs/lifetime.md": ROOT / "tests" / "docs" / "test_lifetime.py",
    "docs/language.md": ROOT / "tests" / "docs" / "test_language.py",
    "docs/performance.md": ROOT / "tests" / "docs" / "test_performance.py",
}

# Of an answer's parts that explain themselves.
PLAIN = {"pipelines", "node", "count", "p50_ms", "p95_ms", "max_ms", "via", "address"}

pytestmark = pytest.mark.slow


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "empty"
    folder.mkdir()
    made = Reader(folder, tmp_path / "home", path=str(VENV / "bin"))
    yield made
    made.kill()


def test_the_readme(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    reader = Reader(checkout(folder, VENV), tmp_path / "home")
    try:
        printed = [reader.try_block(b) for b in blocks(README) if b.text not in ELSEWHERE]
        assert "curl -X POST" in printed[0]
        assert "signups-to-sqlite v1" in printed[2]
        assert "exists(data.email)" in printed[3]
        ended = reader.stop()
    finally:
        reader.kill()
    assert "\nstopped\n" in ended
    names = query(folder / "examples" / "data" / "signups.db", "SELECT name FROM signups")
    assert names == [["Ada"]]


def test_the_yaml_of_the_readme_is_the_example() -> None:
    shown = README.read_text().partition("```yaml\n")[2].partition("```")[0]
    example = (ROOT / "examples" / "people-intake.pipo").read_text()
    assert _bare(shown) == _bare(example)


def test_getting_started(reader: Reader) -> None:
    printed = "\n".join(reader.try_block(block) for block in blocks(GUIDE))
    assert "wrong.pipo:4:" in printed
    assert "filtered" in printed
    assert "\nstopped\n" in reader.stop()


def test_the_editors_page(reader: Reader) -> None:
    first, last = (reader.try_block(block) for block in blocks(EDITOR))
    assert first == ""
    judge = compiled(json.loads((reader.folder / "pipo.schema.json").read_text()))
    written = load((reader.folder / "hello.pipo").read_text(), "hello.pipo").root
    assert written is not None
    assert judge.is_valid(plain(written))
    assert last.startswith("hello.pipo:6:")
    shown = blocks(EDITOR, "yaml")[0].text
    assert check([Source(shown, "hello.pipo")], manifests())[0].findings == []


def test_the_recipes(reader: Reader) -> None:
    """Each recipe passes its check without a warning, and delivers what the page sends it."""
    names = []
    for block in blocks(RECIPES, "yaml"):
        names.append(block.text.partition("name: ")[2].partition("\n")[0])
        file = f"{names[-1]}.pipo"
        (reader.folder / file).write_text(reader.with_own_ports(block.text) + "\n")
        assert check([Source(block.text, file)], manifests())[0].findings == []
    try:
        for block in blocks(RECIPES):
            reader.try_block(block)
        wait_for(lambda: _counts(reader) == dict.fromkeys(names, (1, 0, 0)), what="all delivered")
        assert "\nstopped\n" in reader.stop()
    finally:
        if (made := reader.folder / "api.pid").exists():
            with suppress(ProcessLookupError):
                os.kill(int(made.read_text()), signal.SIGKILL)


@pytest.mark.seed("C001", "C002", "C004", "C030")
def test_the_chain(reader: Reader) -> None:
    """Both packets arrive, the second one through a receiver that was away for a while."""
    files = blocks(CHAINS, "yaml")
    for block in files:
        name = block.text.partition("name: ")[2].partition("\n")[0]
        (reader.folder / f"{name}.pipo").write_text(block.text + "\n")
    sources = [Source(block.text, f"{n}.pipo") for n, block in enumerate(files)]
    assert [one.findings for one in check(sources, manifests())] == [[], []]
    printed = [reader.try_block(block) for block in blocks(CHAINS)]
    both = {"people-intake": (2, 0, 0), "people-store": (2, 0, 0)}
    wait_for(lambda: _counts(reader) == both, what="both delivered by both")
    sent = next(PACKET_ID.findall(said)[0] for said in printed if '"accepted"' in said)
    told = reader.try_block(Block("docs/chains.md", 0, f"pipo inspect people-intake {sent}"))
    assert "seen" in told
    assert "people-store" in told
    rows = query(reader.folder / "data" / "people.db", "SELECT email, name FROM people ORDER BY 1")
    assert rows == [["ada@example.com", "Ada"], ["bo@example.com", "Bo"]]
    assert "\nstopped\n" in reader.stop()


def test_observing(reader: Reader) -> None:
    printed = []
    for block in blocks(OBSERVING):
        if block.text == "pipo status":
            wait_for(lambda: _counts(reader) == {"orders": (2, 0, 0)}, what="both delivered")
        printed.append(reader.try_block(block))
    _, _, _, table, details, whole, story = printed
    for block, said in zip(blocks(OBSERVING, ""), (table, details), strict=True):
        assert _labels(block.text) == _labels(said)
    # Every name of the JSON stands on the page.
    page = OBSERVING.read_text()
    assert {name for name in re.findall(r'"(\w+)":', whole) if name not in page} <= PLAIN
    assert "output.written" in story
    assert "\nstopped\n" in reader.stop()


def _labels(shown: str) -> list[str]:
    """What the lines of a status begin with."""
    return [line.split("  ")[0] for line in shown.splitlines()]


@pytest.mark.seed("R066")
def test_recovering(reader: Reader) -> None:
    printed = []
    for block in blocks(RECOVERING):
        printed.append(reader.try_block(block))
        if "orders --data" in block.text:
            # A person reads the page on before the next command; a dead letter takes a moment.
            wait_for(lambda: _counts(reader)["orders"][2] == 1, what="one dead letter")
    assert any("has no table" in said for said in printed)
    wait_for(lambda: _counts(reader) == {"orders": (2, 0, 0)}, what="both delivered in the end")
    rows = query(reader.folder / "data" / "shop.db", "SELECT item FROM orders ORDER BY item")
    assert rows == [["5"], ["TEA"]]
    assert "\nstopped\n" in reader.stop()


def test_versions(reader: Reader) -> None:
    printed = [reader.try_block(block) for block in blocks(VERSIONS)]
    assert printed[2].startswith("applied v2 to greet: new packets use it, before it was v1\n")
    assert "more polite" in printed[3]
    assert '-  say: { from: input, transform: map, with: { data: "hello' in printed[3]
    assert printed[4].startswith("rolled greet back to v1: new packets use it as v3\n")
    assert "\nstopped\n" in reader.stop()


def _counts(reader: Reader) -> dict[str, tuple[int, int, int]]:
    """By pipeline: how many packets are delivered, pending and dead."""
    printed = reader.try_block(Block("the pipelines' counts", 0, "pipo status --json"))
    return {
        one["name"]: tuple(one["stats"][key] for key in ("delivered", "pending", "dead_lettered"))
        for one in json.loads(printed)["pipelines"]
    }


def test_the_settings_of_editors_parse_and_name_the_schema() -> None:
    files = [json.loads(block.text) for block in blocks(EDITOR, "json")]
    files += [tomllib.loads(block.text) for block in blocks(EDITOR, "toml")]
    assert len(files) == 3
    assert all("./pipo.schema.json" in str(settings) for settings in files)


def test_no_page_has_a_command_that_nothing_runs() -> None:
    pages = {p for p in (ROOT / "docs").rglob("*.md") if blocks(p)}
    assert {
        str(p.relative_to(ROOT))
        for p in pages - {GUIDE, EDITOR, RECIPES, OBSERVING, RECOVERING, CHAINS, VERSIONS}
    } <= set(OTHER_PAGES)
    assert all(place.exists() for place in OTHER_PAGES.values())


def _bare(text: str) -> list[str]:
    """The lines without comments and blanks."""
    lines = (line.partition(" #")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
