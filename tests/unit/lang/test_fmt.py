"""`pipo fmt`'s layout: what moves, what stays, and that nothing changes its meaning."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipo.connectors.registry import manifests
from pipo.errors import Internal, InvalidPipeline
from pipo.lang.check import Source, check
from pipo.lang.document import plain
from pipo.lang.fmt import fmt
from pipo.lang.layout import Layout
from pipo.lang.load import load
from tests.unit.lang import test_seed_examples

MANIFESTS = manifests()
ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "contract" / "conformance" / "check"
FILES = sorted([*(ROOT / "examples").glob("*.pipo"), *CASES.rglob("*.pipo")])
SEEDS = {
    name: text
    for name, text in vars(test_seed_examples).items()
    if isinstance(text, str) and text.startswith("pipo: 1")
}


def formatted(text: str) -> str:
    """The text in its layout, which a second time changes nothing."""
    made = fmt(text, "tried.pipo", MANIFESTS)
    assert fmt(made, "tried.pipo", MANIFESTS) == made
    return made


def check_layout(text: str, wanted: str) -> None:
    assert formatted(dedent(text)) == dedent(wanted)


# ── order ──


def test_the_languages_keys_are_ordered_and_the_authors_are_not() -> None:
    check_layout(
        """\
        retention: { trail: 1d, data: 2d }
        output:
          with: { table: t, columns: { z: 1, a: 2 }, path: ./a.db }
          to: sqlite
          from: [z, a]
        nodes:
          z: { route: { b: data.b, a: else }, from: input, odd: 1 }
          a:
            loop: { max: 2, until: data.ok, back_to: z }
            with: { data: { y: 1, x: 2 } }
            transform: map
            from: z.b
        name: tried
        input: { with: { path: /a, method: PUT, auth: { equals: x, header: h } }, via: http }
        pipo: 1
        """,
        """\
        pipo: 1
        name: tried
        input: { via: http, with: { path: /a, method: PUT, auth: { header: h, equals: x } } }
        nodes:
          z: { from: input, route: { b: data.b, a: else }, odd: 1 }
          a:
            from: z.b
            transform: map
            with: { data: { y: 1, x: 2 } }
            loop: { back_to: z, until: data.ok, max: 2 }
        output:
          from: [z, a]
          to: sqlite
          with: { path: ./a.db, table: t, columns: { z: 1, a: 2 } }
        retention: { data: 2d, trail: 1d }
        """,
    )


def test_a_checks_settings_follow_the_outputs_connector() -> None:
    check_layout(
        """\
        delivered: { with: { min: 1, params: [], query: q }, check: row_count }
        output: { to: sqlite }
        """,
        """\
        output: { to: sqlite }
        delivered: { check: row_count, with: { query: q, params: [], min: 1 } }
        """,
    )


def test_settings_of_an_unknown_connector_keep_their_order() -> None:
    check_layout(
        "output: { with: { b: 1, a: 2 }, to: x }\n", "output: { to: x, with: { b: 1, a: 2 } }\n"
    )


def test_no_alias_comes_before_its_anchor() -> None:
    check_layout(
        """\
        output: &o
          on_error: &p { then: halt, retry: 1 }
          to: stdout
        errors: *p
        """,
        """\
        output: &o
          to: stdout
          on_error: &p { retry: 1, then: halt }
        errors: *p
        """,
    )


def test_an_anchors_name_used_twice_holds_the_order() -> None:
    text = "errors:\n  then: &a x\n  delay: *a\n  retry: &a 1\n  message: *a\n"
    assert formatted(text) == text
    check_layout(
        "other: &a x\nerrors: { then: *a, delay: *a }\n",
        "other: &a x\nerrors: { delay: *a, then: *a }\n",
    )


def test_a_merged_map_stands_first() -> None:
    check_layout(
        "a: &m { retry: 1 }\nerrors:\n  then: drop\n  <<: *m\n",
        "a: &m { retry: 1 }\nerrors:\n  <<: *m\n  then: drop\n",
    )


# ── comments and blank lines ──


def test_comments_move_with_what_they_stand_at() -> None:
    check_layout(
        """\
        # The file.

        # where to
        output:   # the one
            to: stdout      # printed
            # from where
            from: input
            # a foot
        # the name
        name: x

        # what comes
        input:
          - via: push   # first
          # second

          -
            # inner
            with: {}
          # off: [1]
        # the end
        """,
        """\
        # The file.

        # the name
        name: x

        # what comes
        input:
          - via: push   # first
          # second

          -
            # inner
            with: {}
          # off: [1]

        # where to
        output:   # the one
          # from where
          from: input
          to: stdout      # printed
          # a foot
        # the end
        """,
    )


def test_comments_between_a_key_and_its_text_stay_there() -> None:
    check_layout(
        "name: # one\n      # two\n      x # three\nb:\n    y\n",
        "name: # one\n  # two\n  x # three\nb: y\n",
    )


def test_blank_lines_part_all_blocks_or_none() -> None:
    check_layout(
        "\n\npipo: 1\nname: x\n\n\n\ninput:\n\n  via: push\n\n\n  with: {}\noutput: {}\n\n",
        "pipo: 1\nname: x\n\ninput:\n  via: push\n\n  with: {}\n\noutput: {}\n",
    )
    check_layout(
        "pipo: 1\ninput:\n  via: x\noutput: {}\n", "pipo: 1\ninput:\n  via: x\noutput: {}\n"
    )


def test_a_blank_line_stays_between_the_same_two_lines() -> None:
    check_layout(
        "input:\n  via: push\n\nname: x\npipo: 1\n\nfn: ./x.py\n",
        "pipo: 1\nname: x\nfn: ./x.py\n\ninput:\n  via: push\n",
    )


def test_a_comments_column_stays_while_there_is_room() -> None:
    check_layout(
        "a: {b: 1}      # one\nlong: {b: 1} # two\n", "a: { b: 1 }    # one\nlong: { b: 1 } # two\n"
    )


# ── texts ──


@pytest.mark.parametrize(
    "text",
    [
        '"true"', "'12:30'", "no", "on", "12:30", "1_000", "0x1F", "0o17", "017", "08", "1.10",
        "1e3", "1E+05", "~", "=", "-0", ".5", "2026-01-02", "123456789012345678901234567890",
        '"\\u00e9\\x41"', "'it''s'", "!!str 1", "! 1", "http://a/b#c", '"# no comment"', ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["a: {}\n", "a: {{ b: {} }}\n", "a:\n  - {}\n", "a: [{}]\n"])
def test_no_text_is_written_anew(text: str, form: str) -> None:
    assert formatted(form.format(text)) == form.format(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: |\n      x\n       y\n\n      z\n\n\n# c\n", "a: |\n  x\n   y\n\n  z\n\n# c\n"),
        ("a: |2\n     x\n", "a: |2\n     x\n"),
        ("b:\n    a: >2-   # c\n        x\n", "b:\n  a: >2-   # c\n      x\n"),
        ("a: |+\n    x\n\n\n", "a: |+\n  x\n\n\n"),
        ("name: |+\n    x\n\n\npipo: 1\n", "pipo: 1\nname: |+\n  x\n\n\n"),
        (
            "pipo: 1\n\ndescription: |+\n  x\n\nfn: a\nname: |+\n  y\n",
            "pipo: 1\n\nname: |+\n  y\ndescription: |+\n  x\n\nfn: a\n",
        ),
        ("a: |\n   x", "a: |-\n  x\n"),
        ("name: |\n  x\n  # in it", "name: |-\n  x\n  # in it\n"),
        ("a: b\n    c\n\n    d # e\n", "a: b\n  c\n\n  d # e\n"),
        ('a: "x\\\n     \\ y\n\n  z"\n', 'a: "x\\\n  \\ y\n\n  z"\n'),
    ],
)
def test_texts_over_several_lines_keep_them(text: str, wanted: str) -> None:
    assert formatted(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: {b: [ 1,2 ],c: {} , }\n", "a: { b: [1, 2], c: {} }\n"),
        ("a: [b: 1,{c},{d: },&x !!str ]\n", "a: [b: 1, { c }, { d: }, &x !!str ]\n"),
        ("a: {b: 1, # c\n d: 2\n}\n", "a: {b: 1, # c\n  d: 2\n  }\n"),
        ("errors: {then: halt,\n   retry:\n}\n", "errors: {retry: ,\n   then: halt\n  }\n"),
        ("errors: {then: halt, # c\n  retry: 1}\n", "errors: {then: halt, # c\n  retry: 1}\n"),
        ("{name: x, pipo: 1}\n", "{ pipo: 1, name: x }\n"),
        ("a: &k b\n*k : {*k : c}\n", "a: &k b\n*k : { *k : c }\n"),
    ],
)
def test_brackets(text: str, wanted: str) -> None:
    assert formatted(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\ufeffname: x\r\npipo: 1 # c\r\n", "pipo: 1 # c\nname: x\n"),
        ("a: 1", "a: 1\n"),
        ("a:\t1\t# c\n", "a: 1 # c\n"),
        ("", ""),
        ("\n\n# c\n\n", "# c\n"),
        ("%YAML 1.1\n--- # c\nname: x\npipo: 1\n... # d\n", "%YAML 1.1\n---\npipo: 1\n# c\nname: x\n... # d\n"),
        ("a:\n- - 1\n  -   b: 1\n      c: 2\n", "a:\n  - - 1\n    - b: 1\n      c: 2\n"),
        ("&a # c\nb: &d # e\n   f: 1\n", "&a\n# c\nb: &d # e\n  f: 1\n"),
        ("? b\n:   c\n", "? b\n:   c\n"),
        ("  a text\n", "  a text\n"),
    ],
)  # fmt: skip
def test_whole_files(text: str, wanted: str) -> None:
    assert formatted(text) == wanted


# ── refusals ──


def test_a_file_that_cannot_be_loaded_is_refused_with_its_finding() -> None:
    with pytest.raises(
        InvalidPipeline, match=r"^x\.pipo:2:1: P001 the key `a` stands here twice"
    ) as e:
        fmt("a: 1\na: 2\n", "x.pipo", MANIFESTS)
    assert [finding.code for finding in e.value.findings] == ["P001"]


@pytest.mark.parametrize(
    "made", ["a: 1\n# c\n", "a: '2'\n# c\n", "a: 2\n", "a: 2\n# c\n# c\n", "{\n"]
)
def test_a_layout_that_says_something_else_is_never_handed_out(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Layout, "file", lambda self, tree: made)
    with pytest.raises(Internal, match=r"^x\.pipo: the layout would change"):
        fmt("a: 2\n# c\n", "x.pipo", MANIFESTS)


def test_an_authors_order_counts_as_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layout, "file", lambda self, tree: "secrets: { b: '2', a: '1' }\n")
    with pytest.raises(Internal):
        fmt("secrets: { a: '1', b: '2' }\n", "x.pipo", MANIFESTS)


# ── whole corpora ──


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_means_the_same_in_its_layout(file: Path) -> None:
    text = Source.read(file).text
    if load(text, "x").root is None:
        with pytest.raises(InvalidPipeline):
            fmt(text, "x", MANIFESTS)
        return
    made = formatted(text)
    before, after = (check([Source(t, str(file))], MANIFESTS)[0] for t in (text, made))
    assert after.pipeline == before.pipeline
    assert Counter((f.code, f.path) for f in after.findings) == Counter(
        (f.code, f.path) for f in before.findings
    )


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.pipo")), ids=lambda f: f.name)
def test_the_examples_are_in_their_layout(file: Path) -> None:
    text = file.read_text()
    assert formatted(text) == text


@pytest.mark.parametrize("name", [name for name in SEEDS if name != "BACKFILL"])
def test_the_documents_examples_are_in_the_layout(name: str) -> None:
    assert formatted(SEEDS[name]) == SEEDS[name]


def test_an_example_that_puts_retention_early_only_moves_it() -> None:
    text = SEEDS["BACKFILL"]
    block = "retention:\n  data: 1d\n  trail: 7d\n"
    assert formatted(text) == text.replace(block, "") + block


# ── generated files ──

WORDS = [
    "x",
    "no",
    "12:30",
    "1_000",
    "0x1F",
    "1.10",
    "~",
    "",
    "it's",
    "a b",
    "${data.a}",
    "#x",
    "a: b",
]
KEYS = {
    "": ["pipo", "name", "errors", "buffer", "input", "nodes", "output", "delivered", "other"],
    "errors": ["retry", "backoff", "delay", "then", "message", "odd"],
    "input": ["via", "with", "format", "validate"],
    "output": ["from", "to", "with", "batch", "on_error"],
    "nodes": ["b", "a", "C1"],
}


def quoted(word: str) -> st.SearchStrategy[str]:
    """A word in one of the ways to write it."""
    double = '"' + word.replace('"', '\\"') + '"'
    single = "'" + word.replace("'", "''") + "'"
    plain_too = [] if word in ("#x", "a: b", "${data.a}") else [word]
    return st.sampled_from([double, single, *plain_too])


texts = st.sampled_from(WORDS).flatmap(quoted)
keys = st.sampled_from(["k", "other", "from", "no", '"q"', "1"])
flows = st.recursive(
    texts.map(lambda text: text or "~"),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{' , '.join(items)} ]"),
        st.dictionaries(keys, inner, max_size=3).map(
            lambda map_: f"{{{','.join(f'{k}:  {v}' for k, v in map_.items())}}}"
        ),
    ),
    max_leaves=4,
)
folded = st.sampled_from(
    ["|\n{i} x\n{i}  # in\n", ">-\n{i} x\n\n{i} y\n", "|2+\n{i}   z\n\n", "p\n{i} q\n"]
)


class Writer:
    """Writes a file in a style that is drawn line by line."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._comments = 0
        self._anchors: list[str] = []

    def comment(self) -> str:
        self._comments += 1
        return f"# c{self._comments}"

    def above(self, at: int) -> str:
        """Comments and blank lines before an entry."""
        lines = self._draw(st.lists(st.sampled_from(["", "same", "out"]), max_size=2))
        pads = {"same": " " * at, "out": " " * self._draw(st.integers(0, at + 3))}
        return "".join(f"{pads[kind]}{self.comment()}\n" if kind else "\n" for kind in lines)

    def end(self) -> str:
        """The end of a line."""
        gap = self._draw(st.sampled_from(["", "", " ", "    "]))
        return f"{gap}{self.comment() if gap else ''}\n"

    def map(self, name: str, at: int, depth: int) -> str:
        names = KEYS.get(name, ["k", "from", "via", "z"])
        count = self._draw(st.integers(1, len(names)))
        chosen = self._draw(st.permutations(names))[:count]
        return "".join(
            self.above(at) + self.entry(f"{' ' * at}{key}:", key, at, depth) for key in chosen
        )

    def entry(self, start: str, key: str, at: int, depth: int) -> str:
        kind = self._draw(st.sampled_from(["text", "flow", "folded", "map", "list", "alias"]))
        inner = at + self._draw(st.integers(1, 4))
        if depth and (kind == "map" or key in KEYS):
            return start + self.end() + self.map(key, inner, depth - 1)
        if depth and kind == "list":
            return start + self.end() + self.items(inner, depth - 1)
        if kind == "folded":
            body: str = self._draw(folded)
            return f"{start} {body.format(i=' ' * (at + 1))}"
        if kind == "alias" and self._anchors:
            return f"{start} *{self._draw(st.sampled_from(self._anchors))}{self.end()}"
        value: str = self._draw(flows if kind == "flow" else texts)
        if not self._draw(st.integers(0, 3)):
            self._anchors.append(f"n{self._draw(st.integers(0, 2))}")
            value = f"&{self._anchors[-1]} {value}".rstrip(" ")
        below = self._draw(st.booleans()) and value
        middle = f"{self.end()}{' ' * inner}" if below else " "
        return f"{start}{middle}{value}{self.end()}"

    def items(self, at: int, depth: int) -> str:
        made = ""
        for _ in range(self._draw(st.integers(1, 3))):
            made += self.above(at) + self.entry(f"{' ' * at}-", "item", at, depth)
        return made


@st.composite
def files(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    return writer.map("", 0, 3) + writer.above(0)


@pytest.mark.slow
@settings(max_examples=60)
@given(files())
def test_any_file_keeps_its_data_and_its_comments(text: str) -> None:
    before = load(text, "x").root
    assert before is not None
    made = formatted(text)
    after = load(made, "x").root
    assert after is not None
    assert plain(after) == plain(before)
    assert comment_lines(made) == comment_lines(text)
    assert "+" in text or "\n\n\n" not in made


def comment_lines(text: str) -> Counter[str]:
    """The comments of the writer, beside a value or in a line of their own."""
    return Counter(re.findall(r"# c\d+$", text, re.MULTILINE))


VALID = [file for file in FILES if check([Source.read(file)], MANIFESTS)[0].ok]


@st.composite
def rearranged(draw: st.DrawFn) -> tuple[Path, str]:
    """A valid file, its blocks in another order and with comments between its lines."""
    file = draw(st.sampled_from(VALID))
    blocks = re.split(r"(?m)^(?=[a-z_]+:)", file.read_text())
    lines = "".join(draw(st.permutations(blocks))).splitlines()
    for number in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(lines)))
        lines.insert(at, f"{' ' * draw(st.integers(0, 8))}# c{number}")
    return file, "\n".join(lines) + "\n"


@pytest.mark.slow
@settings(max_examples=60)
@given(rearranged())
def test_any_valid_file_keeps_its_model(drawn: tuple[Path, str]) -> None:
    file, text = drawn
    before = check([Source(text, str(file))], MANIFESTS)[0]
    if load(text, "x").root is None:
        return  # a comment that ended a text
    after = check([Source(formatted(text), str(file))], MANIFESTS)[0]
    assert after.pipeline == before.pipeline
    assert comment_lines(formatted(text)) == comment_lines(text)
