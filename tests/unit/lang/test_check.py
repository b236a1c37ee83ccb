from __future__ import annotations

from pathlib import Path

import pytest

from pipo.errors import InvalidPipeline
from pipo.lang.check import Source, check, parse, restore, shown
from pipo.lang.codes import CODES, TEXT_LIMIT

from .reading import HEAD, MANIFESTS, PUSH, STDOUT, codes, findings, found

WRONG = """\
pipo: 1
name: wrong
input:
  via: htpp
  with: { path: /w }
nodes:
  keep: { from: input, filter: "data.amount >" }
  norm: { from: kep, transform: fn.nope }
fn: ./missing.fn.py
ouput: { from: norm, to: sqlite, with: { path: ./out/w.db } }
concurrency: many
buffer: { max: -1 }
retention: { data: fast }
delivered: { check: file_exists, within: 10 }
"""


def test_one_run_lists_every_mistake_with_the_way_out() -> None:
    found = findings(WRONG, "wrong.pipo")
    assert [(f.code, f.line, f.col, f.path) for f in found] == [
        ("P002", 1, 1, ""),
        ("P002", 4, 8, "input.via"),
        ("P040", 7, 46, "nodes.keep.filter"),
        ("P010", 8, 17, "nodes.norm.from"),
        ("P014", 9, 5, "fn"),
        ("P002", 10, 1, "ouput"),
        ("P002", 11, 14, "concurrency"),
        ("P002", 12, 16, "buffer.max"),
        ("P002", 13, 20, "retention.data"),
        ("P002", 14, 42, "delivered.within"),
    ]
    hints = {f.path or f.message: f.hint for f in found}
    assert hints["input.via"].startswith("did you mean `http`?")
    assert hints["nodes.norm.from"].startswith("did you mean `keep`?")
    assert hints["ouput"].startswith("did you mean `output`?")
    messages = {f.path: f.message for f in found}
    assert messages["concurrency"] == "`concurrency` takes a whole number, found the text 'many'"
    assert "a duration such as 250ms" in messages["delivered.within"]
    assert all(f.severity == "error" for f in found)


@pytest.mark.seed("D024")
def test_a_refusal_as_it_is_printed() -> None:
    lines = [
        *PUSH.splitlines(),
        *("#" for _ in range(53)),
        "output:",
        "  from: input",
        "  to: sqlite",
        "  with: { path: ./x.db, table: people }",
    ]
    text = "\n".join([*lines, "delivered:", "  check: file_exists"])
    file = "people-intake.pipo"
    [finding] = findings(text.replace("#\n", "#\n", 1), file)
    assert finding.line == 62
    assert shown(file, finding).split("\n") == [
        "people-intake.pipo:62:10  error  P031  delivered.check 'file_exists' is not supported by output 'sqlite'",
        "  supported: ack, record_exists, row_count, query, external, none",
    ]


def test_findings_are_ordered_by_position() -> None:
    places = [(f.line, f.col) for f in findings(WRONG)]
    assert places == sorted(places)


def test_every_finding_has_a_hint() -> None:
    assert all(f.hint for f in findings(WRONG))
    assert all(code.advice and code.title for code in CODES.values())
    assert list(CODES) == sorted(CODES)


def test_yaml_that_does_not_load_is_the_only_finding() -> None:
    assert codes("pipo: 2\nname: X\nname: y\n") == ["P001"]


def test_parse_gives_the_model_or_raises_all_findings() -> None:
    assert parse(Source(PUSH + STDOUT, "x.pipo"), MANIFESTS).name == "tried"
    with pytest.raises(InvalidPipeline) as raised:
        parse(Source(WRONG, "wrong.pipo"), MANIFESTS)
    assert len(raised.value.findings) == 10
    assert str(raised.value) == "wrong.pipo:1:1: P002 `output` is missing, and 9 more"


def test_warnings_do_not_stop_a_pipeline() -> None:
    text = PUSH + "nodes: { r: { from: input, route: { a: data.x, b: else } } }\n"
    report = check([Source(text + "output: { from: r.a, to: stdout }", "x.pipo")], MANIFESTS)[0]
    assert [f.code for f in report.findings] == ["P025"]
    assert report.ok
    assert report.pipeline is not None


def test_reports_stand_in_the_order_of_the_sources() -> None:
    sources = [Source("a: [", "a"), Source(PUSH + STDOUT, "b"), Source("", "c")]
    reports = check(sources, MANIFESTS)
    assert [r.file for r in reports] == ["a", "b", "c"]
    assert [r.ok for r in reports] == [False, True, False]


def test_a_source_is_read_whatever_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.pipo"
    path.write_bytes(b"pipo: 1\nname: \xff\n")
    source = Source.read(path)
    assert source.file == str(path)
    assert [(f.code, f.line, f.col) for f in check([source], MANIFESTS)[0].findings] == [
        ("P001", 2, 7)
    ]
    assert Source.read(path, "shown.pipo").file == "shown.pipo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("P002", 1, 1)]),
        ("[a]", [("P002", 1, 1)]),
        ("5", [("P002", 1, 1)]),
        (PUSH + "nodes:\n" + STDOUT, [("P002", 4, 7)]),
        (PUSH + "nodes: [a]\n" + STDOUT, [("P002", 4, 8)]),
        (PUSH + "output: [{ from: input, to: stdout }]", [("P002", 4, 9)]),
        (HEAD + "input: []\n" + STDOUT, [("P002", 3, 8)]),
        (HEAD + "inputs: { input: 5 }\n" + STDOUT, [("P002", 3, 18)]),
        (PUSH + "nodes: { n: 7 }\n" + "output: { from: n, to: stdout }", [("P002", 4, 13)]),
        (PUSH + "delivered: 5\n" + STDOUT, [("P002", 4, 12)]),
    ],
)
def test_blocks_that_are_no_maps(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert found(text) == expected


def test_a_broken_block_is_not_judged_further_and_the_others_are() -> None:
    text = PUSH + (
        "nodes:\n"
        "  a: { from: input, filter: 'data.x >', nope: 1 }\n"
        "  b: { from: a, filter: 'data.x >' }\n"
        "output: { from: b, to: stdout }\n"
    )
    assert [(c, line) for c, line, _ in found(text)] == [("P002", 5), ("P040", 6)]


def test_without_an_output_the_graph_is_not_judged() -> None:
    text = PUSH + "nodes: { a: { from: input, tap: log }, b: { from: nope, tap: log } }\n"
    assert codes(text) == ["P002", "P010"]


def test_a_stored_text_is_read_without_its_files() -> None:
    text = PUSH.replace("via: push", "via: push, schema: ./gone.json") + STDOUT
    assert codes(text) == ["P014"]
    assert restore(Source(text, "v1")).inputs[0].schema == "./gone.json"
    for broken in ("a: [", "", "pipo: 1", PUSH + STDOUT + "nope: 1", HEAD + STDOUT):
        with pytest.raises(InvalidPipeline, match="v1: the stored text is no pipeline"):
            restore(Source(broken, "v1"))


@pytest.mark.parametrize("name", ["a" * 100_000, "a." * 50_000, "é" * 100_000])
def test_a_name_of_any_length_makes_no_endless_line(name: str) -> None:
    texts = [
        PUSH + STDOUT + f"? {name}\n: 1\n",
        PUSH + STDOUT + f"? {name}\n: 1\n? {name}\n: 1\n",
        PUSH + STDOUT + f"fn: {name}\n",
        PUSH + STDOUT + f"description: !{name} x\n",
        PUSH + f"nodes: {{ ? {name} : {{ from: {name}, tap: {name} }} }}\n" + STDOUT,
        PUSH + f"output: {{ from: {name}, to: {name} }}\n",
    ]
    for text in texts:
        assert (found := findings(text))
        assert all(len(f.message) <= TEXT_LIMIT and len(f.hint) <= TEXT_LIMIT for f in found)
