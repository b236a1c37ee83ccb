"""The conformance cases of the language, run as they lie.

They are read from `$PIPO_SHARED/conformance`, from `../shared` beside the
repository, or from the copy that the repository carries.
"""

from __future__ import annotations

import json
import math
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipo import durations
from pipo.clock import iso
from pipo.connectors.registry import manifests
from pipo.errors import Finding
from pipo.lang.check import Report, Source, check
from pipo.lang.cron import BadCron, Cron
from pipo.lang.expressions import MISSING, LanguageError, compile_expression
from pipo.lang.templates import compile_template
from pipo_cli.main import main

REPOSITORY = Path(__file__).parents[2]


def _folder() -> Path:
    shared = os.environ.get("PIPO_SHARED")
    for root in (Path(shared) if shared else None, REPOSITORY.parent / "shared"):
        if root and (root / "conformance" / "check" / "index.json").is_file():
            return root / "conformance"
    return Path(__file__).parent / "conformance"


FOLDER = _folder()
CHECK = FOLDER / "check"
EXPRESSIONS = json.loads((FOLDER / "expressions.json").read_bytes())
TIMES = json.loads((FOLDER / "durations-and-cron.json").read_bytes())
RUNS = json.loads((CHECK / "index.json").read_bytes())["cases"]
MANIFESTS = manifests()


def by_id(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases])


# ── expressions and templates ────────────────────────────────────────────────


def evaluated(case: dict[str, Any]) -> Any:
    compiled = compile_expression if case["kind"] == "expr" else compile_template
    return compiled(case["source"]).evaluate(case["context"])


@by_id(EXPRESSIONS)
def test_expression(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(LanguageError) as raised:
            evaluated(case)
        assert raised.value.kind == case["error"]
    elif case.get("undefined"):
        assert evaluated(case) is MISSING
    elif "number" in case:
        assert number_name(evaluated(case)) == case["number"]
    else:
        assert same_json(evaluated(case), case["value"])


@by_id(EXPRESSIONS)
def test_expression_by_command(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pipo eval --json` prints the outcome that the case names."""
    context = tmp_path / "context.json"
    context.write_text(json.dumps(case["context"]), encoding="utf-8")
    words = ["eval", "--json", "--context", str(context)]
    template = ["--template"] if case["kind"] == "template" else []
    code = main([*words, *template, "--", case["source"]])
    said = json.loads(capsys.readouterr().out)
    if "error" in case:
        assert (code, list(said), said["error"]["kind"]) == (1, ["error"], case["error"])
        assert 0 <= said["error"]["position"] <= len(case["source"])
    else:
        assert code == 0
        wanted = {k: case[k] for k in ("value", "undefined", "number") if k in case}
        assert same_json(said, wanted)


def number_name(value: Any) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "-0" if value == 0 and math.copysign(1, value) < 0 else str(value)


def same_json(left: Any, right: Any) -> bool:
    """Numbers by value, objects in any order, booleans are no numbers."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


# ── times ────────────────────────────────────────────────────────────────────


@by_id(TIMES["durations"])
def test_duration(case: dict[str, Any]) -> None:
    call = compile_expression("duration(data)")
    if case.get("error"):
        with pytest.raises(LanguageError):
            call.evaluate({"data": case["text"]})
    else:
        assert call.evaluate({"data": case["text"]}) == case["ms"]
    if case.get("error") or case.get("in_file") == "error":
        with pytest.raises(ValueError, match=r"is not a duration"):
            durations.parse(case["text"])


@by_id(TIMES["cron"])
def test_cron(case: dict[str, Any]) -> None:
    schedule = Cron(case["expr"])
    at = round(datetime.fromisoformat(case["after"]).timestamp() * 1000)
    fires = []
    for _ in case["next"]:
        at = schedule.next_after(at)
        fires.append(iso(at))
    assert fires == case["next"]


@by_id(TIMES["cron_errors"])
def test_bad_cron(case: dict[str, Any]) -> None:
    with pytest.raises(BadCron):
        Cron(case["expr"])


# ── the checker ──────────────────────────────────────────────────────────────


@by_id(RUNS)
def test_check(case: dict[str, Any]) -> None:
    sources = [Source.read(CHECK / file) for file in case["check"]]
    for file, report in zip(
        case["check"], check(sources, MANIFESTS, import_modules=True), strict=True
    ):
        missing, extra = compared(report, case["expected"][file], case.get("may_also", ()))
        assert not missing, f"{file} lacks {missing}"
        assert not extra, f"{file} has {extra}"
        assert (report.pipeline is not None) == report.ok
        assert report.findings == sorted(report.findings, key=lambda f: (f.line, f.col))


def compared(report: Report, wanted: list[dict[str, Any]], may_also: Any) -> tuple[Any, Any]:
    """The expected diagnostics that were not found, and the findings that nobody expects."""
    missing = list(wanted)
    extra = []
    for finding in report.findings:
        match = next((each for each in missing if fits(finding, each)), None)
        if match:
            missing.remove(match)
        elif finding.code not in may_also:
            extra.append(finding)
    return missing, extra


def fits(finding: Finding, wanted: dict[str, Any]) -> bool:
    return (
        finding.code in (wanted["code"], wanted.get("or_code"))
        and finding.severity == wanted["severity"]
        and wanted["line"] in (None, finding.line)
        and wanted["col"] in (None, finding.col)
    )
