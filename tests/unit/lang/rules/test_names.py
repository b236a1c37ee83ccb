from __future__ import annotations

import pytest

from tests.unit.lang.reading import HEAD, PUSH, STDOUT, codes, findings, found


def inputs(count: int) -> str:
    lines = [f"  i{n}: {{ via: push }}" for n in range(count)]
    names = ", ".join(f"i{n}" for n in range(count))
    return HEAD + "\n".join(["inputs:", *lines, f"output: {{ from: [{names}], to: stdout }}"])


@pytest.mark.seed("C009")
def test_a_pipeline_has_one_to_sixteen_inputs() -> None:
    assert codes(inputs(16)) == []
    assert found(inputs(17)) == [("P060", 3, 1)]
    assert codes(HEAD + STDOUT) == ["P060"]
    assert found(PUSH + "inputs: { a: { via: push } }\n" + STDOUT) == [("P060", 4, 1)]
    assert codes(HEAD + "inputs: {}\n" + STDOUT) == ["P002"]


def test_names_that_no_pipeline_can_have() -> None:
    """One is Pipo's own, and a longer one has no room for its files' endings."""
    own = findings("pipo: 1\nname: engine\ninput: { via: push }\n" + STDOUT)
    assert [(f.code, f.line, f.message) for f in own] == [
        ("P002", 2, "a pipeline cannot be called `engine`")
    ]
    named = "pipo: 1\nname: {}\ninput: {{ via: push }}\n" + STDOUT.replace("{", "{{").replace(
        "}", "}}"
    )
    assert codes(named.format("a" * 200)) == []
    assert codes(named.format("a" * 201)) == ["P002"]


def test_reserved_and_shared_names() -> None:
    node = "nodes: { %s: { from: %s, tap: log } }\noutput: { from: %s, to: stdout }"
    assert found(PUSH + node % ("input", "input", "input")) == [("P015", 4, 10)]
    assert found(PUSH + node % ("output", "input", "input")) == [("P015", 4, 10)]
    two = HEAD + "inputs: { %s: { via: push } }\n"
    assert found(two % "a" + node % ("a", "a", "a")) == [("P061", 3, 11)]
    assert found(two % "output" + node % ("b", "output", "b")) == [("P061", 3, 11)]
    assert codes(two % "input" + node % ("b", "input", "b")) == []


@pytest.mark.parametrize(
    ("node", "code", "message"),
    [
        ("label: x", "P036", "the node `n` has no kind"),
        ("tap: log, filter: data.x", "P036", "the node `n` is `tap` and `filter` at once"),
        ("tap: lgo", "P030", "there is no tap `lgo`"),
        ("tap: map", "P030", "there is no tap `map`"),
        ("transform: log", "P030", "there is no transform `log`"),
        ("transform: fn.a.b", "P030", "there is no transform `fn.a.b`"),
        ("transform: fn.", "P030", "there is no transform `fn.`"),
        ("agent: fn.x", "P030", "there is no agent `fn.x`"),
        ("agent: claude", "P030", "there is no agent `claude`"),
    ],
)
def test_kinds(node: str, code: str, message: str) -> None:
    text = PUSH + f"nodes: {{ n: {{ from: input, {node} }} }}\noutput: {{ from: n, to: stdout }}"
    [finding] = findings(text)
    assert (finding.code, finding.message) == (code, message)
    assert finding.line == 4


def test_hints_of_unknown_connectors() -> None:
    text = PUSH + "nodes: { n: { from: input, %s } }\noutput: { from: n, to: stdout }"
    assert findings(text % "tap: lgo")[0].hint.startswith("did you mean `log`? there are: emit")
    assert findings(text % "agent: claude")[0].hint == "did you mean `claude_api`?"


def test_input_beside_inputs_is_shown_at_inputs() -> None:
    single, several = "input: { via: push }\n", "inputs: { a: { via: push } }\n"
    assert found(HEAD + single + several + STDOUT) == [("P060", 4, 1)]
    assert found(HEAD + several + single + STDOUT) == [("P060", 3, 1)]
