"""`pipo fmt` over real files."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipo.errors import Internal
from pipo_cli import formatting
from pipo_cli.main import main

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LOOSE = "name: x   # who\npipo: 1\nodd: {a: no}\n"
TIDY = "pipo: 1\nname: x   # who\nodd: { a: no }\n"
BROKEN = "a: 1\na: 2\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "home"))
    for name, text in (("loose", LOOSE), ("tidy", TIDY)):
        Path(f"{name}.pipo").write_text(text)


def typed(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))


def answered(capsys: pytest.CaptureFixture[str]) -> Any:
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_only_changed_files_are_written_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    before = os.stat("tidy.pipo")
    assert main(["fmt", "."]) == 0
    assert capsys.readouterr() == ("loose.pipo\n", "")
    assert Path("loose.pipo").read_text() == TIDY
    assert os.stat("tidy.pipo").st_ino == before.st_ino
    assert main(["fmt", "."]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(os.listdir()) == ["loose.pipo", "tidy.pipo"]


def test_check_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", "loose.pipo", "tidy.pipo"]) == 1
    assert capsys.readouterr() == ("loose.pipo\n", "")
    assert Path("loose.pipo").read_text() == LOOSE
    assert main(["fmt", "--check", "tidy.pipo"]) == 0


def test_the_examples_are_in_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", str(EXAMPLES)]) == 0
    assert capsys.readouterr().out == ""


def test_a_link_and_a_mode_stay() -> None:
    os.chmod("loose.pipo", 0o666)
    os.symlink("loose.pipo", "link.pipo")
    mask = os.umask(0o077)
    try:
        assert main(["fmt", "link.pipo"]) == 0
    finally:
        os.umask(mask)
    assert Path("link.pipo").is_symlink()
    assert Path("loose.pipo").read_text() == TIDY
    assert os.stat("loose.pipo").st_mode & 0o777 == 0o666


def test_a_file_that_cannot_be_loaded_stays_and_the_others_are_laid_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("broken.pipo").write_text(BROKEN)
    assert main(["fmt", "."]) == 1
    out, err = capsys.readouterr()
    assert out == "loose.pipo\n"
    lines = err.splitlines()
    assert lines[0] == "broken.pipo:2:1  error  P001  the key `a` stands here twice"
    assert lines[-2:] == [
        "error: broken.pipo cannot be read, and stays as it is",
        "  hint: mend it, then format it again",
    ]
    assert Path("broken.pipo").read_text() == BROKEN


def test_a_layout_that_would_change_the_file_is_not_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: Any) -> str:
        raise Internal("loose.pipo: the layout would change it", hint="report it")

    monkeypatch.setattr(formatting, "laid_out", refuse)
    assert main(["fmt", "loose.pipo"]) == 1
    assert capsys.readouterr().err.startswith("error: loose.pipo: the layout would change it\n")
    assert Path("loose.pipo").read_text() == LOOSE


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.pipo").write_bytes(b"\xff\n")
    assert main(["fmt", "--check", "--json", "."]) == 1
    answer = answered(capsys)
    assert [(f["file"], f["changed"], f.get("code")) for f in answer["files"]] == [
        ("broken.pipo", False, "invalid_pipeline"),
        ("loose.pipo", True, None),
        ("tidy.pipo", False, None),
    ]
    assert not answer["ok"]
    assert answer["files"][0]["diagnostics"][0]["code"] == "P001"
    assert main(["fmt", "--json", "loose.pipo"]) == 0
    assert answered(capsys) == {"ok": True, "files": [{"file": "loose.pipo", "changed": True}]}


def test_standard_input(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, LOOSE.replace("\n", "\r\n").encode())
    assert main(["fmt", "-"]) == 0
    assert capfdbinary.readouterr().out == TIDY.encode()
    typed(monkeypatch, LOOSE.encode())
    assert main(["fmt", "--check", "-"]) == 1
    assert capfdbinary.readouterr().out == b"<stdin>\n"
    typed(monkeypatch, LOOSE.encode())
    assert main(["fmt", "--json", "-"]) == 0
    answer = json.loads(capfdbinary.readouterr().out)
    assert answer == {"ok": True, "files": [{"file": "<stdin>", "changed": True, "text": TIDY}]}
    typed(monkeypatch, BROKEN.encode())
    assert main(["fmt", "-"]) == 1
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert err.startswith(b"<stdin>:2:1  error  P001  ")


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        ((), 2, "Missing argument 'PATH...'"),
        (("-", "tidy.pipo"), 2, "`-` stands alone"),
        (("nowhere.pipo",), 1, "no such file or folder: nowhere.pipo"),
        (("/dev/null",), 0, ""),
    ],
)
def test_other_words(
    words: tuple[str, ...], exit_code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fmt", *words]) == exit_code
    assert message in capsys.readouterr().err
