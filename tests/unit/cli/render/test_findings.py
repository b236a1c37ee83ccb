"""Findings as text and JSON (edge 404)."""

from dataclasses import replace

import click

from pipo.errors import Finding
from pipo_cli.render import findings

P031 = Finding(
    code="P031",
    severity="error",
    message="delivered.check 'file_exists' is not supported by output 'sqlite'",
    hint="supported: ack, record_exists, row_count, query, external, none",
    line=61,
    col=10,
    path="delivered.check",
)


def test_the_sample_of_delivery_checks() -> None:
    assert findings.report("people-intake.pipo", [P031]) == [
        "people-intake.pipo:61:10  error  P031  "
        "delivered.check 'file_exists' is not supported by output 'sqlite'",
        "  supported: ack, record_exists, row_count, query, external, none",
    ]


def test_every_line_of_a_hint_is_indented() -> None:
    two = Finding("P001", "warning", "m", "one\ntwo", 1, 2)
    assert findings.report("f", [two]) == ["f:1:2  warning  P001  m", "  one", "  two"]


def test_a_file_without_findings_is_ok() -> None:
    assert findings.report("f.pipo", []) == ["f.pipo  ok"]


def test_json_there_and_back() -> None:
    assert findings.from_json(findings.as_json([P031])) == [P031]


def test_a_terminal_sees_the_severity_in_its_colour() -> None:
    warning = replace(P031, severity="warning", hint="")
    lines = findings.report("f", [P031, warning], colour=True)
    assert "\x1b[31m\x1b[1merror\x1b[0m" in lines[0]
    assert "\x1b[33m\x1b[1mwarning\x1b[0m" in lines[2]
    assert [click.unstyle(line) for line in lines] == findings.report("f", [P031, warning])


def test_a_name_of_a_file_cannot_move_the_terminal() -> None:
    assert findings.report("a\x1b[2J", []) == ["a\\x1b[2J  ok"]
    assert findings.report("a\x1b[2J", [P031])[0].startswith("a\\x1b[2J:61:10  error")
