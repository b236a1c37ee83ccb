from __future__ import annotations

import pytest

from pipo.lang.rules.texts import MEMBERS
from tests.unit.lang.reading import HEAD, PUSH, STDOUT, codes, findings, found

ALL = ("data", "meta", "env", "secrets", "output", "result", "error", "stats", "stall")

NODE = "nodes: {{ n: {{ from: input, {} }} }}\noutput: {{ from: n, to: stdout }}\n"
CONTROL = "agent: { control: true }\n"

# A place for `@`, and the variables that it sees (facts §5.1).
POSITIONS = {
    HEAD + "input: { via: push, validate: ['@'] }\n" + STDOUT: "data meta env",
    PUSH + NODE.format("filter: '@'"): "data meta env",
    PUSH + NODE.format("tap: log, loop: { back_to: n, until: '@', max: 1 }"): "data meta env",
    PUSH + "output: { from: input, to: stdout, validate: ['@'] }": "data meta env output",
    PUSH + STDOUT + "lifetime: { until: '@' }": "stats env",
    HEAD
    + "input: { via: schedule, with: { every: 5s, payload: ['${@}'] } }\n"
    + STDOUT: "env secrets",
    PUSH + NODE.format("tap: log, with: { message: 'a ${@}' }"): "data meta env secrets",
    PUSH + NODE.format("tap: fn.x, with: { a: ['${@}'] }"): "data meta env secrets",
    PUSH + "output: { from: input, to: file, with: { path: '${@}' } }": "data meta env secrets",
    PUSH
    + "output: { from: input, to: file, with: { path: x } }\n"
    + "delivered: { check: line_contains, with: { value: '${@}' } }": (
        "data meta env secrets output result"
    ),
    HEAD
    + "input: { via: push, on_invalid: { message: '${@}' } }\n"
    + STDOUT: "data meta env error",
    PUSH + NODE.format("tap: log, on_error: { message: '${@}' }"): "data meta env error",
    PUSH + STDOUT + "errors: { message: '${@}' }": "data meta env error",
    PUSH + "output: { from: input, to: stdout, on_invalid: { message: '${@}' } }": (
        "data meta env output error"
    ),
    PUSH + "output: { from: input, to: stdout, on_error: { message: '${@}' } }": (
        "data meta env output error"
    ),
    PUSH
    + STDOUT
    + "delivered: { on_fail: { message: '${@}' } }": "data meta env output result error",
    PUSH + STDOUT + "delivered: { stall: { after: 5m, message: '${@}' } }": "meta env stats stall",
}


@pytest.mark.parametrize(("text", "variables"), POSITIONS.items())
def test_every_position_sees_its_variables(text: str, variables: str) -> None:
    for name in ALL:
        member = MEMBERS.get((name,), ("x",))[0]
        found_codes = [
            c for c in codes(text.replace("@", f"{name}.{member}")) if c not in ("P012", "P013")
        ]
        in_with = "secrets" in variables
        refused = ["P051"] if name == "secrets" and not in_with else ["P041"]
        assert found_codes == ([] if name in variables.split() else refused), name
    assert "P041" in codes(text.replace("@", "nope"))
    assert "P040" in codes(text.replace("@", "data."))


def test_names_are_placed_inside_their_text() -> None:
    text = PUSH + NODE.format('tap: log, with: { message: "a \\u00e9 ${data.x} ${nope + datta}" }')
    assert found(text) == [("P041", 4, 77), ("P041", 4, 84)]
    assert findings(text)[1].hint.startswith("did you mean `data`? available here: data, meta")


def test_what_a_variable_never_holds_is_named() -> None:
    until = PUSH + STDOUT + "lifetime: { until: stats.dlivered >= 2 }\n"
    (seen,) = findings(until)
    assert (seen.code, seen.message) == ("P041", "`stats` has no `dlivered`")
    assert seen.hint.startswith("did you mean `delivered`? it has: accepted, delivered, pending")
    for held in MEMBERS["stats",]:
        assert codes(until.replace("dlivered", held)) == []
    stall = PUSH + STDOUT + "delivered: { stall: { after: 5m, message: '${stall.oldest.%s}' } }"
    assert codes(stall % "last_error") == []
    assert [one.message for one in findings(stall % "lst")] == ["`stall.oldest` has no `lst`"]
    rule = PUSH + "output: { from: input, to: stdout, validate: ['%s'] }"
    assert codes(rule % "meta.id") == codes(rule % 'meta["id"]') == ["P041"]
    assert codes(rule % "meta.upstream?.nope == 1 && meta.id && meta.id") == ["P041", "P041"]
    # What data, env and the rest hold, nobody knows.
    assert codes(rule % "data.id && env.ID && output.id && meta[data.x] && meta.key.id") == []


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("${stats.delivered >= 2}", "without `${…}`: stats.delivered >= 2"),
        ("${stats.delivered} >= 2", "without `${…}`"),
        ("${stats.delivered", "without `${…}`"),
    ],
)
def test_a_template_in_the_place_of_an_expression(written: str, hint: str) -> None:
    (seen,) = findings(PUSH + STDOUT + f"lifetime: {{ until: '{written}' }}\n")
    assert seen.code == "P040"
    assert seen.hint == f"an expression stands here, {hint}"


def test_a_name_is_reported_once_in_a_text() -> None:
    assert codes(PUSH + STDOUT + "lifetime: { until: 'data.a && data.b' }") == ["P041"]


def test_a_branch_that_is_never_reached_is_judged_all_the_same() -> None:
    assert codes(PUSH + NODE.format("filter: true || nope")) == ["P041"]


def test_else_is_no_variable() -> None:
    text = PUSH + "nodes: { r: { from: input, route: { a: %s, b: else } } }\n"
    output = "output: { from: [r.a, r.b], to: stdout }"
    assert codes(text % "data.x" + output) == []
    assert codes(text % "elsewhere" + output) == ["P041"]


def test_declared_secrets() -> None:
    secrets = "secrets: { token: env:T }\n"
    text = secrets + PUSH + "output: { from: input, to: file, with: { path: '${secrets.%s}' } }"
    assert codes(text % "token") == []
    assert found(text % "tokn") == [("P013", 5, 48)]
    assert findings(text % "tokn")[0].hint == "did you mean `token`? declared secrets: token"
    assert codes(text % "token + secrets.other.x") == ["P013"]
    assert codes(text % "other} ${secrets.other} ${secrets.more") == ["P013", "P013"]
    assert codes((text % "x").replace("secrets.x", "secrets[data.x]")) == []


def test_literal_settings_are_no_templates() -> None:
    text = PUSH + NODE.format("agent: codex, with: { prompt: p, schema: './${x' }")
    assert codes(text) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("headers: { Authorization: 'Bearer abc' }", ["P050"]),
        ("headers: { X-Api-Key: abc }", ["P050"]),
        ("headers: { X-Key: AKIA1234 }", ["P050"]),
        ("body: { password: hunter2 }", ["P050"]),
        ("body: { authtoken: x, clientSecret: x, dbpasswd: x, tokens: x }", ["P050"] * 4),
        ("body: { secretary: Bob, tokenizer: words, secretion: none }", []),
        ("body: { list: [sk-abc, xoxb-1, ghp_1, plain] }", ["P050", "P050", "P050"]),
        ("headers: { Authorization: 'Bearer ${secrets.s}' }", []),
        ("body: { token: 'op://a/b/c', secret: env:X, credential: '' }", []),
        ("body: { text: 'a sk- b', tokens: 5 }", []),
    ],
)
def test_secrets_that_are_written_out(settings: str, expected: list[str]) -> None:
    text = (
        PUSH
        + f"secrets: {{ s: env:S }}\noutput: {{ from: input, to: http, with: {{ url: x, {settings} }} }}"
    )
    assert codes(text) == expected
