from __future__ import annotations

import pytest

from tests.unit.lang.reading import HEAD, PUSH, STDOUT, codes, findings, found


def sqlite(settings: str) -> str:
    return (
        PUSH + f"output: {{ from: input, to: sqlite, with: {{ path: x, table: t, {settings} }} }}"
    )


@pytest.mark.seed("O018")
def test_columns_hold_the_key() -> None:
    assert codes(sqlite("columns: { a: 1 }")) == ["P037"]
    assert codes(sqlite("key: b, columns: { a: 1 }")) == ["P037"]
    assert codes(sqlite("columns: {}")) == ["P037"]
    assert codes(sqlite("key: a, columns: { a: 1 }")) == []
    assert codes(sqlite("columns: { packet_id: 1 }")) == []


def test_a_key_without_columns() -> None:
    [finding] = findings(sqlite("key: email"))
    assert (finding.code, finding.severity, finding.col) == ("P065", "warning", 68)
    assert codes(sqlite("key: packet_id")) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("every: 5s", []),
        ("cron: '0 6 * * *'", []),
        ("cron: '0 6 * * *', timezone: Europe/Paris", []),
        ("payload: 1", [("P038", 3, 31)]),
        ("every: 5s, cron: '0 6 * * *'", [("P038", 3, 31)]),
        ("cron: '0 25 * * *'", [("P038", 3, 39)]),
        ("cron: '0 6 * * *', timezone: Europe/Pariss", [("P038", 3, 62)]),
        ("cron: '0 6 * * *', timezone: ''", [("P038", 3, 62)]),
        ("every: 5s, timezone: Europe/Paris", [("P038", 3, 54)]),
        ("cron: '${env.C}', timezone: '${env.Z}'", [("P038", 3, 39), ("P038", 3, 61)]),
        ("cron: '0 6 * *', timezone: nowhere", [("P038", 3, 39), ("P038", 3, 60)]),
    ],
)
def test_schedules(settings: str, expected: list[tuple[str, int, int]]) -> None:
    text = HEAD + f"input: {{ via: schedule, with: {{ {settings} }} }}\n" + STDOUT
    assert found(text) == expected


def test_a_misspelt_zone_gets_a_suggestion() -> None:
    text = (
        HEAD + "input: { via: schedule, with: { cron: '* * * * *', timezone: America/NewYork } }\n"
    )
    [finding] = findings(text + STDOUT)
    assert finding.hint == "did you mean `America/New_York`?"


def two(via: str, first: str, second: str) -> str:
    return HEAD + (
        f"inputs:\n  a: {{ via: {via}, with: {{ {first} }} }}\n"
        f"  b: {{ via: {via}, with: {{ {second} }} }}\n"
        "output: { from: [a, b], to: stdout }\n"
    )


@pytest.mark.parametrize(
    ("via", "first", "second", "expected"),
    [
        ("http", "path: /a", "path: /b", []),
        ("http", "path: /a", "path: /a, method: GET", []),
        ("http", "path: /a", "path: /a, method: POST", ["P062"]),
        ("http", "path: /a", "path: /a/", ["P062"]),
        ("http", "", "path: /", ["P062"]),
        ("http", "path: /a, listen: 1", "path: /b, listen: 2", ["P062"]),
        ("http", "path: /a, listen: 1", "path: /b, listen: 1", []),
        ("http", "path: /a, listen: 1", "path: /b", []),
        ("telegram", "", "", ["P062"]),
        ("telegram", "", "bot: default", ["P062"]),
        ("telegram", "bot: a", "bot: b", []),
        ("telegram", "token: '${secrets.t}'", "bot: a", []),
        ("telegram", "token: '${secrets.t}'", "token: '${secrets.t}', bot: a", ["P062"]),
        ("pipeline", "from: [x]", "from: [y]", []),
        ("pipeline", "from: [x]", "from: [y, x]", ["P063"]),
        ("pipeline", "from: [x]", "from: [tried]", ["P063"]),
    ],
)
def test_two_inputs_of_one_kind(via: str, first: str, second: str, expected: list[str]) -> None:
    text = "secrets: { t: env:T }\n" + two(via, first, second)
    found_codes = found(text)
    assert [code for code, _, _ in found_codes] == expected
    assert all(line == 6 for _, line, _ in found_codes)


def test_a_pipeline_does_not_feed_itself() -> None:
    text = PUSH + "output: { from: input, to: pipeline, with: { pipeline: %s } }"
    assert found(text % "tried") == [("P063", 4, 56)]
    assert codes(text % "other") == []
    assert codes(text % "'${data.p}'") == []


@pytest.mark.parametrize(
    ("via", "settings", "expected"),
    [
        ("telegram", "text: x", []),
        ("push", "text: x", ["P057"]),
        ("push", "chat_id: 5", []),
        ("push", "chat_id: '${data.c}'", []),
    ],
)
def test_a_message_needs_a_chat(via: str, settings: str, expected: list[str]) -> None:
    head = HEAD + f"input: {{ via: {via} }}\n"
    tap = f"nodes: {{ n: {{ from: input, tap: telegram, with: {{ {settings} }} }} }}\n"
    assert codes(head + tap + "output: { from: n, to: stdout }") == expected
    assert (
        codes(head + f"output: {{ from: input, to: telegram, with: {{ {settings} }} }}") == expected
    )


def test_the_chat_of_another_input_does_not_count() -> None:
    head = HEAD + "inputs: { t: { via: telegram }, p: { via: push } }\n"
    nodes = "nodes: { n: { from: t, tap: telegram, with: { text: x } } }\n"
    assert codes(head + nodes + "output: { from: [n, p], to: stdout }") == []
    assert codes(
        head + nodes.replace("from: t", "from: [t, p]") + "output: { from: n, to: stdout }"
    ) == ["P057"]


def node(settings: str) -> str:
    return (
        PUSH + f"nodes: {{ n: {{ from: input, {settings} }} }}\noutput: {{ from: n, to: stdout }}\n"
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("date", []),
        ("./a/b.sh", []),
        ("date -u", ["P058"]),
        ("'date '", ["P058"]),
        ("' date'", ["P058"]),
        ('"date\\t-u"', ["P058"]),
        ("'${data.c} -u'", []),
    ],
)
def test_commands(command: str, expected: list[str]) -> None:
    assert codes(node(f"tap: exec, with: {{ command: {command} }}")) == expected
    assert codes(node(f"transform: exec, with: {{ command: {command} }}")) == expected


def test_model_calls_without_a_budget() -> None:
    call = node("agent: claude_api, with: { model: m, prompt: p, schema: '${x}' }")
    [finding] = findings(call)
    assert (finding.code, finding.severity) == ("P053", "warning")
    assert codes(call + "agent_budget: { per_day: 1 }") == []
    assert codes(node("agent: codex, with: { prompt: p, schema: '${x}' }")) == []


@pytest.mark.parametrize("verify", ["last 1", "last 1000", "'  last   25 '"])
def test_verify(verify: str) -> None:
    assert codes(PUSH + STDOUT + f"agent: {{ verify: {verify} }}") == []


@pytest.mark.parametrize(
    "verify", ["last 0", "last 1001", "last 025", "last", "25", "first 2", "''"]
)
def test_verify_that_cannot_be(verify: str) -> None:
    expected = ["P002"] if verify == "25" else ["P055"]
    assert codes(PUSH + STDOUT + f"agent: {{ verify: {verify} }}") == expected
