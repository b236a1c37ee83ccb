from __future__ import annotations

import pytest

from tests.unit.lang.reading import HEAD, PUSH, codes, findings, found


def graph(*nodes: str, output: str, head: str = PUSH) -> str:
    """A pipeline of taps `name<from`, routes `name<from:branch,branch`, and an output."""
    lines = []
    for node in nodes:
        name, _, source = node.partition("<")
        source, _, branches = source.partition(":")
        kind = "tap: log"
        if branches:
            rules = ", ".join(
                f"{b}: {'else' if b == 'rest' else 'data.x'}" for b in branches.split(",")
            )
            kind = f"route: {{ {rules} }}"
        lines.append(f"  {name}: {{ from: [{source.replace('+', ', ')}], {kind} }}")
    text = "nodes:\n" + "\n".join(lines) + "\n" if lines else ""
    return head + text + f"output: {{ from: [{output}], to: stdout }}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (graph("a<input", output="a"), []),
        (graph("a<input+nope", output="a"), ["P010"]),
        # A source that leads nowhere makes no second finding.
        (graph("a<nope", "b<input", output="a, b"), ["P010"]),
        (graph("a<input", "b<aa", output="b"), ["P010"]),
        # It cannot have meant a node from which it does not lead on either.
        (graph("a<input", "b<input", "c<bb", output="a"), ["P021", "P021", "P010"]),
        (graph("r<input:x,rest", output="r.x, r.rest, r.x.y"), ["P010"]),
        (graph("r<input:x,rest", output="r.x, r.rest, r.y"), ["P011"]),
        (graph("r<input:x,y", output="r.x, r.z"), ["P011"]),
        (graph("a<input", output="a, a.x"), ["P011"]),
        (graph(output="input, input.x"), ["P011"]),
        (graph("r<input:x,y", output="r"), ["P016"]),
        (graph("r<input:rest,x", output="r.x, r.rest"), ["P017"]),
        (graph("r<input:rest,x,y", output="r.x, r.y, r.rest"), ["P017"]),
        (graph("a<b", "b<a", "c<input", output="c"), ["P020", "P021", "P022", "P020", "P021"]),
        (graph("a<input", "b<input", output="a"), ["P021"]),
        (graph("a<input", "b<a", "c<b", output="a"), ["P021", "P021"]),
        (graph("a<input+c", "b<a", "c<b", output="c"), ["P022"]),
        (graph("a<input+a", output="a"), ["P022"]),
        (graph("r<input:x,y,rest", output="r.x, r.rest"), ["P025"]),
        (graph("r<input:x,y,rest", "b<r.y", output="r.x, r.rest"), ["P021"]),
    ],
)
def test_the_graph(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_the_output_must_be_reached() -> None:
    text = graph("a<b", "b<a", output="b")
    assert [f.message for f in findings(text) if f.code == "P020"][-1] == (
        "no packet from an input reaches the output"
    )


def test_an_entry_of_inputs_must_lead_to_the_output_and_a_single_input_need_not_be_named() -> None:
    head = HEAD + "inputs:\n  a: { via: push }\n  b: { via: push }\n"
    assert found(graph(output="a", head=head)) == [("P021", 5, 8)]


def test_one_finding_for_each_circle() -> None:
    text = graph("a<input+b", "b<a", "c<b+d", "d<c", output="d")
    found_circles = [f for f in findings(text) if f.code == "P022"]
    assert [f.message for f in found_circles] == [
        "the nodes feed each other: a → b → a",
        "the nodes feed each other: c → d → c",
    ]


def test_sources_that_are_nearly_right() -> None:
    hints = [f.hint for f in findings(graph("r<input:one,two", output="r.one, r.twoo"))]
    assert hints == ["did you mean `two`? its branches are: one, two"]
    [finding] = findings(graph("scale<input", output="scales"))
    assert finding.hint.startswith("did you mean `scale`?")


@pytest.mark.parametrize(
    ("back_to", "expected"),
    [("b", []), ("a", []), ("c", ["P023"]), ("input", ["P024"]), ("nope", ["P024"])],
)
def test_loops(back_to: str, expected: list[str]) -> None:
    loop = f"loop: {{ back_to: {back_to}, until: data.ok, max: 2 }}"
    text = graph("a<input", "b<a", "c<b", output="c").replace(
        "[a], tap: log", f"[a], tap: log, {loop}"
    )
    assert codes(text) == expected


class TestCopies:
    """P026."""

    def text(self, *, fans_out: bool, value: str, delivered: str = "") -> str:
        nodes = "nodes: { a: { from: input, tap: log }, b: { from: a, tap: log } }\n"
        sources = "[a, b]" if fans_out else "b"
        settings = f"path: x.db, table: t, key: id, columns: {{ id: '{value}' }}"
        output = f"output: {{ from: {sources}, to: sqlite, with: {{ {settings} }} }}\n"
        return PUSH + nodes + output + delivered

    def test_a_key_that_all_copies_share(self) -> None:
        assert codes(self.text(fans_out=True, value="${meta.packet_id}")) == ["P026"]
        assert codes(self.text(fans_out=True, value='${meta["packet_id"]}')) == ["P026"]

    @pytest.mark.parametrize(
        "value", ["${meta.key}", "${meta.packet_id}:${meta.branch}", "${data.id}", "plain"]
    )
    def test_a_key_of_each_copy(self, value: str) -> None:
        assert codes(self.text(fans_out=True, value=value)) == []

    def test_without_a_fan_out(self) -> None:
        assert codes(self.text(fans_out=False, value="${meta.packet_id}")) == []

    def test_a_lookup_that_all_copies_share(self) -> None:
        where = "delivered: { check: record_exists, with: { where: { id: '${meta.packet_id}' } } }"
        assert codes(self.text(fans_out=True, value="${meta.key}", delivered=where)) == ["P026"]

    def test_a_header_that_all_copies_share(self) -> None:
        text = PUSH + (
            "nodes: { a: { from: input, tap: log } }\n"
            "output: { from: [a, input], to: http, with: { url: x, "
            "headers: { idempotency-key: '${meta.packet_id}', X: '${meta.packet_id}' } } }"
        )
        assert codes(text) == ["P026"]

    def test_the_branches_of_a_route_are_no_fan_out(self) -> None:
        text = graph("r<input:x,rest", "a<r.x", "b<r.rest", output="a, b").replace(
            "to: stdout",
            "to: sqlite, with: { path: x, table: t, columns: { packet_id: '${meta.packet_id}' } }",
        )
        assert codes(text) == []


@pytest.mark.parametrize(
    "broken",
    [
        "a: { from: nope, tap: log, oops: 1 }",
        "a: { from: [input, input.x], tap: log, oops: 1 }",
        "a: { from: a, tap: log, oops: 1 }",
        "a: { from: input, tap: log, oops: 1 }",
    ],
)
def test_a_node_with_a_p002_is_not_judged_further(broken: str) -> None:
    text = PUSH + f"nodes:\n  {broken}\noutput: {{ from: input, to: stdout }}\n"
    assert codes(text) == ["P002"]


def test_an_input_with_a_p002_is_not_judged_further() -> None:
    text = (
        HEAD + "inputs: { a: { via: nope }, b: { via: push } }\noutput: { from: b, to: stdout }\n"
    )
    assert codes(text) == ["P002"]
    text = (
        HEAD + "inputs: { 1a: { via: push }, b: { via: push } }\noutput: { from: b, to: stdout }\n"
    )
    assert codes(text) == ["P002"]


def test_an_output_with_a_p002_still_ends_the_graph() -> None:
    text = PUSH + "nodes: { a: { from: input, tap: log } }\noutput: { from: input, to: file }\n"
    assert codes(text) == ["P021", "P002"]


def test_a_node_of_two_kinds_is_no_route_yet() -> None:
    node = "nodes: { a: { from: input, filter: data.x, route: { b: data.y } } }\n"
    assert codes(PUSH + node + "output: { from: a, to: stdout }\n") == ["P036"]
    assert codes(PUSH + node + "output: { from: a.b, to: stdout }\n") == ["P036"]


def test_a_circle_is_shown_in_the_order_of_its_packets() -> None:
    text = graph("a<input+b", "b<c", "c<a", output="c")
    assert [f.message for f in findings(text)] == ["the nodes feed each other: a → c → b → a"]


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ("{ from: input, tap: log }", (6, 11)),
        ("{tap: log, from: input}", (6, 10)),
        ("{ <<: *a, from: input }", (6, 11)),
        ("\n    <<: *a\n    from: input", (7, 5)),
        ("\n    tap: log\n    from: input", (7, 5)),
        ("\n    # a comment\n    'tap': log\n    from: input", (8, 5)),
        ("*a", (6, 9)),
    ],
)
def test_a_node_stands_at_its_first_key(node: str, place: tuple[int, int]) -> None:
    used = "nodes:\n  a: &a { from: input, tap: log }\n"
    text = PUSH + used + f"  dead: {node}\noutput: {{ from: a, to: stdout }}\n"
    assert found(text) == [("P021", *place)]
