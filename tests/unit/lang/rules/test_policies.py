from __future__ import annotations

import pytest

from pipo.lang.schema import THEN
from tests.unit.lang.reading import HEAD, MANIFESTS, PUSH, STDOUT, codes, findings

SETTINGS = {
    "sqlite": "path: x.db, table: t",
    "file": "path: x",
    "http": "url: x",
    "telegram": "chat_id: 5",
    "pipeline": "pipeline: other",
    "stdout": "format: json",
}
OWN_CHECKS = {
    "sqlite": {
        "record_exists": "where: { a: 1 }",
        "row_count": "query: SELECT 1",
        "query": "sql: SELECT 1",
    },
    "file": {
        "file_exists": "",
        "file_nonempty": "",
        "line_contains": "value: x",
        "checksum": "sha256: '${data.h}'",
    },
    "http": {"status": "", "follow_up": "url: x"},
    "telegram": {},
    "pipeline": {"downstream": ""},
    "stdout": {},
}
CHECKS = {name: settings for own in OWN_CHECKS.values() for name, settings in own.items()}


def written(to: str, check: str, settings: str = "", extra: str = "") -> str:
    return PUSH + (
        f"output: {{ from: input, to: {to}, with: {{ {SETTINGS[to]} }}{extra} }}\n"
        f"delivered: {{ check: {check}, with: {{ {settings} }} }}\n"
    )


@pytest.mark.seed("D021", "D022", "D023", "O044")
@pytest.mark.parametrize("to", SETTINGS)
def test_every_output_with_every_check(to: str) -> None:
    for check in ("ack", "external", "none"):
        assert codes(written(to, check)) == []
    for check, settings in CHECKS.items():
        expected = [] if check in OWN_CHECKS[to] else ["P031"]
        assert codes(written(to, check, settings)) == expected, check


def test_all_checks_are_in_the_matrix() -> None:
    assert set(CHECKS) == {check for manifest in MANIFESTS.values() for check in manifest.checks}


@pytest.mark.seed("O065")
@pytest.mark.parametrize("to", SETTINGS)
def test_batches(to: str) -> None:
    expected = [] if to in ("sqlite", "file") else ["P032"]
    assert codes(written(to, "ack", extra=", batch: { size: 5 }")) == expected


NODE = "nodes: {{ n: {{ from: input, {} }} }}\noutput: {{ from: n, to: stdout }}\n"
CONTROL = "agent: { control: true }\n"
OUTPUT_WORDS = "dead_letter pause halt agent"
# Where a `then` stands (`@`) and the words that it may be (facts §6).
POLICIES = {
    PUSH + NODE.format("tap: log, on_error: { then: @ }"): " ".join(THEN),
    PUSH + NODE.format("transform: map, with: { data: 1 }, on_error: { then: @ }"): (
        "dead_letter drop pause halt agent"
    ),
    PUSH
    + NODE.format("filter: data.x, on_error: { then: @ }"): "dead_letter drop pause halt agent",
    PUSH + NODE.format("tap: log, loop: { back_to: n, until: data.x, max: 1, then: @ }"): (
        "dead_letter drop pause halt agent"
    ),
    PUSH + STDOUT + "errors: { then: @ }\n": OUTPUT_WORDS,
    PUSH + "output: { from: input, to: stdout, on_error: { then: @ } }\n": OUTPUT_WORDS,
    PUSH + "output: { from: input, to: stdout, on_invalid: { then: @ } }\n": OUTPUT_WORDS,
    PUSH + STDOUT + "delivered: { on_fail: { then: @ } }\n": OUTPUT_WORDS,
    HEAD + "input: { via: push, on_invalid: { then: @ } }\n" + STDOUT: "agent",
}


@pytest.mark.seed("D017", "O057", "O061")
@pytest.mark.parametrize(("text", "words"), POLICIES.items())
def test_every_then_in_every_place(text: str, words: str) -> None:
    for word in THEN:
        expected = [] if word in words.split() else ["P033"]
        assert codes(text.replace("@", word) + CONTROL) == expected, word
    assert codes(text.replace("@", "agent")) == ["P034"]
    assert codes(text.replace("@", "agent") + "agent: { control: false }\n") == ["P034"]
    assert codes(text.replace("@", "retry")) == ["P002"]


def test_handing_over_to_agents_needs_control() -> None:
    stall = "delivered: { stall: { after: 5m, then: agent } }\n"
    assert codes(PUSH + STDOUT + stall) == ["P034"]
    assert codes(PUSH + STDOUT + stall + CONTROL) == []
    assert codes(PUSH + STDOUT + "agent: { on_stall: handle }\n") == ["P034"]
    assert codes(PUSH + STDOUT + "agent: { on_stall: notify }\n") == []
    # A block that fails its schema says nothing about control.
    assert codes(PUSH + STDOUT + stall + "agent: { control: yes }\n") == ["P002"]


def test_only_http_inputs_answer() -> None:
    respond = "input: {{ via: {}, with: {{ {} }}, on_invalid: {{ respond: 400 }} }}\n"
    assert codes(HEAD + respond.format("http", "path: /x") + STDOUT) == []
    assert codes(HEAD + respond.format("push", "") + STDOUT) == ["P035"]
    output = "output: { from: input, to: stdout, on_invalid: { respond: 400, then: halt } }"
    assert codes(PUSH + output) == ["P035"]


def test_on_fail_does_not_retry() -> None:
    keys = "retry: 1, backoff: fixed, delay: 1s, max_delay: 1s, then: halt, message: m"
    found = findings(PUSH + STDOUT + f"delivered: {{ on_fail: {{ {keys} }} }}")
    assert [(f.code, f.severity, f.path) for f in found] == [
        ("P066", "warning", f"delivered.on_fail.{key}")
        for key in ("retry", "backoff", "delay", "max_delay")
    ]
