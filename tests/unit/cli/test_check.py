"""`pipo check`, and the check that `run` and `start` make first, over real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pipo.errors import NotFound
from pipo_cli import author
from pipo_cli.author import pipeline_files
from pipo_cli.failures import BrokenFile
from pipo_cli.main import main
from pipo_cli.running import _checked, _file_of
from pipo_cli.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"

GOOD = """\
pipo: 1
name: good
input:
  via: push
output:
  from: input
  to: file
  with: { path: ./out.jsonl }
"""

# Report R42: one run lists all of it, each at its place.
WRONG = """\
pipo: 1
name: wrong
input:
  via: htpp
  with: { path: /w }
nodes:
  keep: { from: input, filter: "data.amount >" }
  norm: { from: kep, transform: fn.nope }
fn: ./missing.fn.py
ouput: { from: norm, to: sqlite, with: { path: ./out/w.db } }
concurrency: many
buffer: { max: -1 }
retention: { data: fast }
delivered: { check: file_exists, within: 10 }
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "home"))


def test_the_examples_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES)]) == 0
    files = ("heartbeat", "people-intake", "signup-intake", "signup-store", "signups")
    assert capsys.readouterr().out == "".join(f"{EXAMPLES}/{f}.pipo  ok\n" for f in files)


def test_every_mistake_of_r42_in_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.pipo").write_text(WRONG)
    assert main(["check", "wrong.pipo"]) == 1
    out = capsys.readouterr().out
    places = [line for line in out.splitlines() if line.startswith("wrong.pipo:")]
    numbers = [int(line.split(":")[1]) for line in places]
    assert numbers == sorted(numbers)
    assert {4, 7, 8, 9, 10, 11, 12, 13, 14} <= set(numbers)
    assert all(len(line.split("  ", 3)) == 4 for line in places)
    for guess in ("http", "keep", "output"):
        assert guess in out
    assert main(["check", "wrong.pipo", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    found = said["files"][0]["diagnostics"]
    assert (said["ok"], said["files"][0]["file"]) == (False, "wrong.pipo")
    assert [d["line"] for d in found] == numbers
    assert set(found[0]) == {"code", "severity", "message", "hint", "line", "col", "path"}


@pytest.mark.slow
def test_run_and_start_refuse_with_the_same_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.pipo").write_text(WRONG)
    main(["check", "wrong.pipo"])
    findings = capsys.readouterr().out
    for words in (["run", "wrong.pipo"], ["start", "wrong.pipo"]):
        assert main(words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(findings)
        assert "error: wrong.pipo does not pass its check" in err
    assert not (tmp_path / "home" / "run" / "services").exists()


def test_a_file_that_is_no_text_has_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("latin.pipo").write_bytes(b"pipo: 1\nname: caf\xe9\n")
    Path("good.pipo").write_text(GOOD)
    assert main(["check", "latin.pipo", "good.pipo"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "latin.pipo:2:10  error  P001  byte 17 is not UTF-8"
    assert out[-1] == "good.pipo  ok"


def test_folders_are_searched_to_the_bottom(tmp_path: Path) -> None:
    for name in ("b.pipo", "a/a.pipo", ".git/x.pipo", "node_modules/y.pipo", "a/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(GOOD)
    assert pipeline_files(["."]) == [Path("a/a.pipo"), Path("b.pipo")]
    assert pipeline_files(["b.pipo", "."]) == [Path("b.pipo"), Path("a/a.pipo")]


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such file or folder: none\.pipo"):
        pipeline_files(["none.pipo"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="no pipeline below empty"):
        pipeline_files(["empty"])


def test_a_file_or_a_name(tmp_path: Path) -> None:
    Path("signups").write_text(GOOD)
    assert _file_of("signups") == Path("signups")
    assert _file_of("heartbeat") is None
    with pytest.raises(NotFound, match=r"no such file: heartbeat\.pipo"):
        _file_of("heartbeat.pipo")
    with pytest.raises(NotFound):
        _file_of("./heartbeat")


@pytest.mark.slow
def test_what_passes_is_named_and_warnings_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.pipo").write_text(GOOD)
    assert _checked(["."], Settings()) == ["good.pipo"]
    Path("bad.pipo").write_text("pipo: 2\n")
    with pytest.raises(BrokenFile, match=r"bad\.pipo does not pass its check"):
        _checked(["."], Settings())
    Path("worse.pipo").write_text("pipo: 3\n")
    capsys.readouterr()
    with pytest.raises(BrokenFile, match="2 files do not pass their check") as caught:
        _checked(["."], Settings())
    assert "bad.pipo:1:" in capsys.readouterr().err
    assert caught.value.file == "worse.pipo"


@pytest.mark.slow
def test_functions_are_imported_since_the_file_stands_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.fn.py").write_text("import nowhere\n\ndef shape(data, meta):\n    return data\n")
    node = "nodes:\n  shaped: { from: input, transform: fn.shape }\nfn: ./x.fn.py\n"
    text = GOOD.replace("output:\n  from: input", f"{node}output:\n  from: shaped")
    (tmp_path / "good.pipo").write_text(text)
    assert main(["check", "good.pipo"]) == 1
    said = capsys.readouterr().out
    assert "P059  the module does not import: " in said
    assert "No module named 'nowhere'" in said


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("device", "size"), [("/dev/zero", 0), ("", 3_000_000)])
def test_what_has_no_end_is_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str, size: int
) -> None:
    file = tmp_path / "big.pipo"
    if device:
        file.symlink_to(device)
    else:
        file.write_text("é" * size)
    assert main(["check", str(file)]) == 1
    assert "the file is larger than 1 MiB" in capsys.readouterr().out


def test_a_pipe_is_read_to_its_end_and_waits_for_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["check", str(pipe)]) == 1
    assert "the file is empty" in capsys.readouterr().out

    with open(os.open(pipe, os.O_RDWR), "w") as writer:
        writer.write(GOOD)
        writer.flush()
        monkeypatch.setattr(author, "PIPE_WAIT_S", 0.05)
        assert main(["check", str(pipe)]) == 1
        assert "nothing comes from the pipe" in capsys.readouterr().err

    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(pipe, os.O_WRONLY)
    os.write(writing, GOOD.encode())
    os.close(writing)
    try:
        assert main(["check", str(pipe)]) == 0
    finally:
        os.close(reader)


def test_a_file_of_several_names_is_checked_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    good = GOOD.replace("via: push", "via: http\n  with: { listen: 8600 }")
    (tmp_path / "good.pipo").write_text(good)
    (tmp_path / "sub" / "link.pipo").symlink_to("../good.pipo")
    names = ["sub/../good.pipo", "good.pipo", str(tmp_path / "good.pipo"), "sub/link.pipo", "."]
    assert main(["check", *names]) == 0
    assert capsys.readouterr().out == "sub/../good.pipo  ok\n"


def test_a_path_that_cannot_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a" * 300]) == 1
    assert capsys.readouterr().err == f"error: cannot read {'a' * 300}: File name too long\n"


@pytest.mark.parametrize("plain", [{}, {"NO_COLOR": "1"}, {"PIPO_PLAIN": "1"}])
def test_only_a_terminal_gets_colours(
    plain: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "good.pipo").write_text(GOOD)
    for name in ("NO_COLOR", "PIPO_PLAIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in plain.items():
        monkeypatch.setenv(name, value)
    main(["check", "good.pipo"])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *stream: False)
    main(["check", "good.pipo"])
    piped, seen = capsys.readouterr().out.splitlines()
    assert piped == "good.pipo  ok"
    assert seen == (piped if plain else f"good.pipo  {click.style('ok', fg='green', bold=True)}")


def test_a_terminal_without_a_letter_shows_it_as_an_escape(tmp_path: Path) -> None:
    (tmp_path / "u.pipo").write_text('pipo: 1\nname: "→"\n')
    shown = subprocess.run(
        [sys.executable, "-m", "pipo_cli.main", "check", "u.pipo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "PIPO_HOME": str(tmp_path / "home")},
        capture_output=True,
        timeout=60,
    )
    assert shown.returncode == 1
    assert b"found the text '\\u2192'" in shown.stdout
