"""What `pipo check` refuses, and how it says so, through the command line (outputs, delivery-checks)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stack import PIPO

pytestmark = pytest.mark.slow

HEAD = "pipo: 1\nname: {name}\ninput: {{ via: push }}\n"
OUTPUTS = {
    "sqlite": "to: sqlite, with: { path: ./a.db, table: t }",
    "file": "to: file, with: { path: ./a.jsonl }",
    "http": 'to: http, with: { url: "http://127.0.0.1:9/" }',
    "stdout": "to: stdout",
    "telegram": "to: telegram, with: { chat_id: 1 }",
    "pipeline": "to: pipeline, with: { pipeline: other }",
}
CHECKS = {
    "ack": "",
    "external": "",
    "none": "",
    "record_exists": "where: { id: 1 }",
    "row_count": "query: SELECT 1",
    "query": "sql: SELECT 1",
    "file_exists": "",
    "file_nonempty": "",
    "line_contains": "value: x",
    "checksum": f"sha256: '{'0' * 64}'",
    "status": "",
    "follow_up": 'url: "http://127.0.0.1:9/"',
    "downstream": "",
}
OWN = {
    "sqlite": "record_exists row_count query",
    "file": "file_exists file_nonempty line_contains checksum",
    "http": "status follow_up",
    "stdout": "",
    "telegram": "",
    "pipeline": "downstream",
}
# One field of a wrong type each.
TYPED = {
    "sqlite": "path: ./a.db, table: [7]",
    "file": "path: [7]",
    "http": "url: [7]",
    "stdout": "format: 7",
    "telegram": "chat_id: [1]",
    "pipeline": "pipeline: [7]",
}
THENS = ("dead_letter", "drop", "continue", "pause", "halt")


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PIPO, "check", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )


def found(folder: Path, files: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The diagnostics of each file, from one run over the folder."""
    for name, text in files.items():
        (folder / f"{name}.pipo").write_text(HEAD.format(name=name) + text)
    done = check(folder, ".", "--json")
    listed = json.loads(done.stdout)["files"]
    by_name = {Path(one["file"]).stem: one["diagnostics"] for one in listed}
    assert set(by_name) == set(files)
    errors = any(d["severity"] == "error" for ds in by_name.values() for d in ds)
    assert done.returncode == int(errors)
    return by_name


def codes(diagnostics: list[dict[str, Any]]) -> list[str]:
    return [one["code"] for one in diagnostics if one["severity"] == "error"]


@pytest.mark.seed("D021", "D022", "D023", "O044")
def test_every_output_with_every_check(tmp_path: Path) -> None:
    files, wanted = {}, {}
    for to, output in OUTPUTS.items():
        for name, settings in CHECKS.items():
            file = f"{to}-{name}".replace("_", "-")
            given = f", with: {{ {settings} }}" if settings else ""
            files[file] = (
                f"output: {{ from: input, {output} }}\ndelivered: {{ check: {name}{given} }}\n"
            )
            fits = name in ("ack", "external", "none", *OWN[to].split())
            wanted[file] = [] if fits else ["P031"]
    assert {name: codes(ds) for name, ds in found(tmp_path, files).items()} == wanted


@pytest.mark.seed("D017", "O057", "O061", "O065", "O067")
def test_what_else_an_output_may_not(tmp_path: Path) -> None:
    files, wanted = {}, {}

    def add(file: str, text: str, *expected: str) -> None:
        files[file], wanted[file] = text, list(expected)

    for then in THENS:
        refused = ["P033"] if then in ("drop", "continue") else []
        for key in ("on_error", "on_invalid"):
            file = f"{key}-{then}".replace("_", "-")
            add(
                file,
                f"output: {{ from: input, to: stdout, {key}: {{ then: {then} }} }}\n",
                *refused,
            )
        on_fail = (
            f"output: {{ from: input, to: stdout }}\ndelivered: {{ on_fail: {{ then: {then} }} }}\n"
        )
        add(f"on-fail-{then}".replace("_", "-"), on_fail, *refused)
    for to, output in OUTPUTS.items():
        batch = f"output: {{ from: input, {output}, batch: {{ size: 5 }} }}\n"
        add(f"batch-{to}", batch, *([] if to in ("sqlite", "file") else ["P032"]))
    add(
        "no-size",
        f"output: {{ from: input, {OUTPUTS['file']}, batch: {{ within: 2s }} }}\n",
        "P002",
    )
    assert {name: codes(ds) for name, ds in found(tmp_path, files).items()} == wanted


@pytest.mark.seed("O001", "O006", "O007", "O008", "O018")
def test_the_shape_of_an_output(tmp_path: Path) -> None:
    files = {
        "none": "",
        "a-list": "output: [{ from: input, to: stdout }]\n",
        "no-from": "output: { to: stdout }\n",
        "no-to": "output: { from: input }\n",
        "another": "output: { from: input, to: kafka }\n",
        "unknown-key": "output: { from: input, to: stdout, retries: 3 }\n",
        "no-key-column": "output: { from: input, to: sqlite, with: { path: a, table: t, key: id, columns: { n: 1 } } }\n",
    }
    unknown = {to: output.rstrip(" }") for to, output in OUTPUTS.items()}
    for to, output in unknown.items():
        separator = ", " if "with" in output else ", with: { "
        files[f"field-{to}"] = f"output: {{ from: input, {output}{separator}colour: red }} }}\n"
    for to in ("sqlite", "file", "http", "pipeline"):
        files[f"missing-{to}"] = f"output: {{ from: input, to: {to}, with: {{}} }}\n"
    for to, settings in TYPED.items():
        files[f"type-{to}"] = f"output: {{ from: input, to: {to}, with: {{ {settings} }} }}\n"
    result = found(tmp_path, files)
    assert codes(result.pop("no-key-column")) == ["P037"]
    for name, diagnostics in result.items():
        assert set(codes(diagnostics)) == {"P002"}, name
    [one] = [d for d in result["another"] if d["code"] == "P002"]
    for to in OUTPUTS:
        assert to in f"{one['message']} {one['hint']}"


ENVELOPE = 'validate: ["data.n > 0"], on_invalid: { then: dead_letter }, on_error: { retry: 1 }'


@pytest.mark.seed("O006")
def test_the_envelope_is_the_same_for_every_output(tmp_path: Path) -> None:
    files = {
        to: f"output: {{ from: input, {output}, {ENVELOPE} }}\n" for to, output in OUTPUTS.items()
    }
    assert {name: codes(ds) for name, ds in found(tmp_path, files).items()} == {
        name: [] for name in files
    }


@pytest.mark.seed("D007", "D058", "D059")
def test_the_delivered_block(tmp_path: Path) -> None:
    whole = (
        "output: {{ from: input, to: file, with: {{ path: ./a.jsonl }} }}\n"
        "delivered:\n  check: line_contains\n  with: {{ value: x }}\n  within: 5s\n"
        "  on_fail: {{ then: dead_letter }}\n  stall: {{ {} }}\n"
    )
    words = ("notify", "pause", "agent", "halt", "drop", "dead_letter")
    files = {
        f"stall-{then}".replace("_", "-"): whole.format(f"after: 5m, then: {then}")
        for then in words
    }
    files["stall-agent"] += "agent: { control: true }\n"
    files["unset"] = whole.format("after: 5m")
    files["no-after"] = whole.format("then: pause")
    allowed = ("stall-notify", "stall-pause", "stall-agent", "unset")
    assert {name: codes(ds) for name, ds in found(tmp_path, files).items()} == {
        name: [] if name in allowed else ["P002"] for name in files
    }


@pytest.mark.seed("D024")
def test_a_refused_check_stands_at_its_place(tmp_path: Path) -> None:
    filler = "".join(f"# line {n}\n" for n in range(4, 59))
    text = (
        "pipo: 1\nname: people-intake\ninput: { via: push }\n"
        + filler
        + "output: { from: input, to: sqlite, with: { path: ./a.db, table: t } }\n"
        "delivered:\n  check: file_exists\n"
    )
    assert text.splitlines()[60] == "  check: file_exists"
    (tmp_path / "people-intake.pipo").write_text(text)
    done = check(tmp_path, "people-intake.pipo")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "people-intake.pipo:61:10  error  P031  delivered.check 'file_exists' is not supported by"
        " output 'sqlite'",
        "  supported: ack, record_exists, row_count, query, external, none",
    ]
