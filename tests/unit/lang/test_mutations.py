"""The check of a sound file that something has happened to: findings inside it, in bounded time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipo.lang.check import Source, check
from tests.unit.lang.reading import MANIFESTS, PUSH, STDOUT, findings

pytestmark = pytest.mark.slow

WHOLE = """\
pipo: 1
name: whole
secrets: { token: env:TOKEN }
lifetime: { ttl: 2h, until: stats.delivered >= 10 }
inputs:
  web: { via: http, with: { path: /w, auth: { header: X, equals: "${secrets.token}" } } }
  clock:
    via: schedule
    with: { cron: "0 6 * * *", timezone: Europe/Paris, payload: &body { a: [1, 2.5, no] } }
    validate: ["data.a", 'len(data) > 0']
    on_invalid: { then: agent, message: "${error.rule}" }
nodes:
  keep: { from: [web, clock], filter: "data.a != 'x'" }
  way: { from: keep, route: { left: "data.a > 1", right: else } }
  note:
    from: way.left
    tap: log
    with:
      message: >-
        one ${meta.packet_id}
        two ${data.b}
    on_error: { retry: 2, backoff: exponential, delay: 1.5s, then: continue }
  shape:
    from: [note, way.right]
    transform: map
    with: { data: { copy: *body, text: "a\\tb ${data.a}" } }
    loop: { back_to: keep, until: data.done, max: 3, then: drop }
output:
  from: shape
  to: sqlite
  with: { path: ./x.db, table: t, key: id, columns: { id: "${meta.key}", <<: { n: 1 } } }
  batch: { size: 5, within: 2s }
  on_invalid: { then: dead_letter }
delivered:
  check: row_count
  with: { query: SELECT 1, params: ["${data.id}"], min: 1 }
  stall: { after: 5m, message: "${stall.pending}" }
agent: { control: true, verify: last 25 }
retention: { data: 1d, dlq: forever }
"""

# As libyaml counts lines.
BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

odd_bits = st.sampled_from(
    [
        *("\t", "\ufeff", "\r", "\n", "\n\n", "\x85", "\u2028", "\x00", "\ud800", "😀", " ", "  "),
        *("${", "${}", "}", "{", "[", "]", '"', "'", "|", ">", "|2-", "#", "%", "@", "- ", ": "),
        *("&body ", "*body", "<<: *body", "? ", "!!str ", "!!int ", "!x ", "---\n", "...\n"),
        *("null", "~", "true", "5", "-1", "1e400", ".nan", "0xF", "9" * 5000, "9" * 400 + "d"),
        *("input", "output", "else", "fn.x", "secrets.x", "data.x =", "engine", "", "x" * 3000),
    ]
)
edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), odd_bits | st.text(max_size=9)),
    min_size=1,
    max_size=4,
)


def edited(text: str, changes: list[tuple[float, int, str]]) -> str:
    """The text with some characters at some places replaced."""
    for where, count, bit in changes:
        at = int(where * len(text))
        text = text[:at] + bit + text[at + count :]
    return text


def test_the_text_that_is_mutated_is_sound() -> None:
    assert findings(WHOLE) == []


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(edits, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\ufeff"]))
def test_findings_lie_inside_the_file_by_position(
    changes: list[tuple[float, int, str]], line_end: str, mark: str
) -> None:
    text = edited(mark + WHOLE, changes).replace("\n", line_end)
    [report] = check([Source(text, "x.pipo")], MANIFESTS)
    assert report.ok == (report.pipeline is not None)
    lines = BREAK.split(text.removeprefix("\ufeff"))
    for found in report.findings:
        assert 1 <= found.line <= len(lines), found
        assert 1 <= found.col <= len(lines[found.line - 1]) + 1, found
        assert found.message
        assert found.hint
    assert report.findings == sorted(report.findings, key=lambda f: (f.line, f.col))


@pytest.mark.parametrize(
    "text",
    [
        PUSH + STDOUT + "".join(f"k{i}: 1\n" for i in range(4000)),
        PUSH + STDOUT + "nodes:\n" + "".join(f" n{i}: {{ from: q{i} }}\n" for i in range(2000)),
        PUSH + STDOUT + "secrets: {" + ",".join(f"t{i}: 5" for i in range(5000)) + "}",
        PUSH + "nodes: { n: { from: input, filter: '" + "a + " * 12_000 + "a' } }\n" + STDOUT,
        PUSH + "output: { from: [" + "input, " * 10_000 + "], to: stdout }",
        "a: &a {" + ",".join(f"k{i}: 1" for i in range(900)) + "}\n" + "b: {<<: [*a, *a]}\n" * 10,
        PUSH
        + "nodes: { n: { from: input, transform: map, with: { data: [&a '"
        + "${data.a}" * 1000
        + "'"
        + ", *a" * 9000
        + "] } } }\n"
        + STDOUT,
        PUSH + "nodes:\n" + "".join(f" 1{i}: {{ from: input }}\n" for i in range(5000)) + STDOUT,
        PUSH
        + "output: { from: input, to: sqlite, with: { path: a, table: t, columns: {"
        + ",".join(f"'1{i}': 1" for i in range(8000))
        + "} } }",
        "[" * 60_000,
        "&a [*a, " * 9000,
        "? " * 30_000,
    ],
    ids=[
        "keys",
        "nodes",
        "secrets",
        "expression",
        "from",
        "merges",
        "aliases",
        "ids",
        "columns",
        "brackets",
        "anchors",
        "asks",
    ],
)
def test_a_check_takes_less_than_50_ms_per_kibibyte(text: str) -> None:
    start = time.process_time()
    findings(text)
    assert time.process_time() - start < 0.05 * len(text) / 1024
