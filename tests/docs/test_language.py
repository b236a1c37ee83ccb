"""docs/language.md says what is so: its tables are current, its examples hold."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.lang.check import Source, check
from pipo.lang.cron import Cron
from pipo.lang.document import Map, plain
from pipo.lang.expressions import compile_expression
from pipo.lang.faults import LanguageError
from pipo.lang.functions import HELPERS
from pipo.lang.load import load
from pipo.lang.missing import MISSING
from pipo.lang.model import KINDS
from pipo.lang.rules.texts import MEMBERS
from pipo.lang.templates import compile_template
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.life.recovery import unit_of
from tests.docs.pages import ROOT, Reader, blocks
from tests.unit.runner.pipeline.rig import pending

PAGE = ROOT / "docs" / "language.md"
TEXT = PAGE.read_text(encoding="utf-8")
MANIFESTS = registry.manifests()
HEAD = "pipo: 1\nname: trial\n"
PUSH = "input: { via: push }\n"
STDOUT = "output: { from: input, to: stdout }\n"

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BAR = re.compile(r"(?<!\\)\|")


def fenced(language: str) -> list[str]:
    return [found[2] for found in _FENCE.finditer(TEXT) if found[1] == language]


def rows(*head: str) -> Iterator[list[str]]:
    """The rows of every table that begins with this head; code marks are taken off cells."""
    inside = False
    for line in TEXT.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in _BAR.split(line)[1:-1]]
        if not cells:
            inside = False
        elif cells[: len(head)] == list(head):
            inside = True
        elif inside and not set("".join(cells)) <= set("-"):
            yield cells


def bare(cell: str) -> str:
    assert cell[0] == cell[-1] == "`", cell
    return cell[1:-1]


def pairs(*head: str) -> list[tuple[str, str]]:
    found = [(bare(cells[0]), cells[1]) for cells in rows(*head)]
    assert found, head
    return found


DATA = json.loads(fenced("json")[0])


def same(value: Any, said: str) -> bool:
    return value is MISSING if said == "missing" else json.dumps(value) == json.dumps(_said(said))


def _said(cell: str) -> Any:
    return json.loads(bare(cell))


# ── the tables ──


@pytest.mark.slow
def test_the_generated_sections_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("expression", "said"), pairs("expression", "value"))
def test_expressions(expression: str, said: str) -> None:
    if said == "error":
        with pytest.raises(LanguageError):
            compile_expression(expression).evaluate({"data": DATA})
    else:
        value = compile_expression(expression).evaluate({"data": DATA})
        assert same(value, said), value


@pytest.mark.parametrize(("template", "said"), pairs("template", "value"))
def test_templates(template: str, said: str) -> None:
    value = compile_template(template).render({"data": DATA})
    assert same(value, said), value


@pytest.mark.parametrize(("written", "said"), pairs("written", "read as"))
def test_scalars(written: str, said: str) -> None:
    root = load(f"value: {written}\n", "trial").root
    assert isinstance(root, Map)
    assert same(plain(root)["value"], said)


@pytest.mark.parametrize(("cron", "said"), pairs("cron", "first tick"))
def test_ticks(cron: str, said: str) -> None:
    def ms(text: str) -> int:
        return int(datetime.fromisoformat(text).timestamp() * 1000)

    assert Cron(cron).next_after(ms("2026-01-01T00:00:00+00:00")) == ms(bare(said))


def test_every_helper_kind_output_and_variable_has_its_row() -> None:
    shown = " ".join(expression for expression, _ in pairs("expression", "value"))
    assert all(f"{helper}(" in shown for helper in HELPERS)
    assert [bare(cells[0]) for cells in rows("kind")] == list(KINDS)
    outputs = {name for cells in rows("output", "a repeated write") for name in _codes(cells[0])}
    assert outputs == {name for name, made in MANIFESTS.items() if made.output}
    variables = {name for cells in rows("where", "what") for name in _codes(cells[2])}
    assert {bare(cells[0]) for cells in rows("variable")} == variables


def test_meta_holds_what_is_said() -> None:
    (meta,) = (cells[1] for cells in rows("variable") if cells[0] == "`meta`")
    scopes = Scopes("trial", env={}, secrets={})
    assert _codes(meta) == list(scopes.meta(unit_of(pending(1)), "step"))


def _codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ── which variables stand where ──

POSITIONS = {
    "`validate` of an input": PUSH.replace(" }", ', validate: ["{}"] }') + STDOUT,
    "`output.validate`": PUSH + STDOUT.replace(" }", ', validate: ["{}"] }'),
    "`lifetime.until`": PUSH + STDOUT + 'lifetime: { until: "{}" }\n',
    "`with` of an input": 'input: { via: http, with: { path: "/${{}}" } }\n' + STDOUT,
    "`with` of a node": PUSH
    + 'nodes: { a: { from: input, tap: log, with: { message: "${{}}" } } }\n'
    + STDOUT.replace("input", "a"),
    "`delivered.with`": PUSH
    + "output: { from: input, to: file, with: { path: x } }\n"
    + 'delivered: { check: line_contains, with: { value: "${{}}" } }\n',
    "`message` of an input's": 'input: { via: push, on_invalid: { message: "${{}}" } }\n' + STDOUT,
    "`message` of `output.": PUSH + STDOUT.replace(" }", ', on_error: { message: "${{}}" } }'),
    "`message` of `delivered.on_fail`": PUSH
    + STDOUT
    + 'delivered: { on_fail: { message: "${{}}" } }\n',
    "`message` of `delivered.stall`": PUSH
    + STDOUT
    + 'delivered: { stall: { after: 1m, message: "${{}}" } }\n',
}


@pytest.mark.parametrize("place", POSITIONS)
def test_variables_stand_where_the_page_says(place: str) -> None:
    (row,) = (cells for cells in rows("where", "what") if cells[0].startswith(place))
    seen = set(_codes(row[2]))
    known = {name for cells in rows("where", "what") for name in _codes(cells[2])}
    for name in known:
        text = HEAD + POSITIONS[place].replace("{}", f"{name}.{MEMBERS.get((name,), ('x',))[0]}")
        found = {f.code for f in check([Source(text, "trial")], MANIFESTS)[0].findings}
        assert bool({"P041", "P051"} & found) == (name not in seen), (name, found)


def test_what_the_variables_hold_is_what_a_check_knows_of_them() -> None:
    told = {cells[0].strip("`"): _codes(cells[1]) for cells in rows("variable", "holds")}
    stall, oldest = MEMBERS["stall",], MEMBERS["stall", "oldest"]
    for name in ("meta", "error", "stats"):
        assert tuple(told[name]) == MEMBERS[name,]
    assert tuple(told["stall"]) == (*stall, *oldest)


def test_every_position_is_tried() -> None:
    assert len(list(rows("where", "what"))) == len(POSITIONS)


# ── the examples ──


def completed(example: str) -> str:
    """A whole pipeline: what an example leaves out is added as simply as can be."""
    root = load(example, "example").root
    assert root is not None
    data = plain(root)
    text = "" if "pipo" in data else HEAD
    if not {"input", "inputs"} & set(data):
        text += PUSH
    if "output" not in data:
        sources = list(data.get("nodes") or data.get("inputs") or ["input"])
        text += f"output: {{ from: {json.dumps(sources[-1:])}, to: stdout }}\n"
        if "nodes" not in data:
            text = text.replace(json.dumps(sources[-1:]), json.dumps(sources))
    return text + example


@pytest.mark.parametrize("example", fenced("yaml"))
def test_examples_pass_the_check(example: str) -> None:
    (report,) = check([Source(completed(example), "example.pipo")], MANIFESTS)
    assert report.findings == []


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path / "home", path=str(Path(sys.executable).parent))
    (whole,) = (example for example in fenced("yaml") if example.startswith("pipo: 1\n"))
    (tmp_path / "tickets.pipo").write_text(whole)
    printed = "\n".join(reader.try_block(block) for block in blocks(PAGE))
    for said in fenced("text"):
        assert said in printed


# ── links ──


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", TEXT), re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(anchors) == len(set(anchors))
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors
        elif not target.startswith("https:"):
            assert (PAGE.parent / target).is_file(), target


def test_nothing_on_the_page_reads_as_html() -> None:
    prose = re.sub(r"`[^`\n]*`|<!--.*?-->", "", _FENCE.sub("", TEXT))
    assert "<" not in prose
