"""`pipo graph`: files into pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from pipo_cli.main import main
from tests.unit.cli.render.test_lanes import DRAWN, ORDERS
from tests.unit.lang.reading import PUSH

FILE = "orders.pipo"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "home"))
    for name in ("PIPO_PLAIN", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    Path(FILE).write_text(ORDERS)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["graph", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_text_is_what_a_person_gets(capsys: pytest.CaptureFixture[str]) -> None:
    # The branch `odd`, which nobody takes, is a warning: no reason not to draw.
    assert run(capsys, FILE) == (0, DRAWN, "")
    assert run(capsys, FILE, "--format", "text") == (0, DRAWN, "")


@pytest.mark.parametrize("name", ["PIPO_PLAIN", "NO_COLOR"])
def test_plain_is_ascii(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    code, out, _ = run(capsys, FILE)
    assert code == 0
    assert out.isascii()
    assert "  |   | *  price " in out


def test_a_terminal_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(FILE).write_text(ORDERS.replace("Tidy up", "Größe 漢"))
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="latin-1", write_through=True))
    assert main(["graph", FILE]) == 0
    said = raw.getvalue().decode("latin-1")
    assert "(Größe \\u6f22)" in said
    assert "  * |      clean " in said


def test_the_picture_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "  sort: { from: input, route: { vip: data.vip, odd: data.odd, rest: else } }\n"
    nodes += "  greet: { from: sort.vip, tap: log }\n"
    output = "output: { from: [greet, sort.rest], to: stdout }\n"
    Path(FILE).write_text(f"{PUSH}nodes:\n{nodes}{output}")
    drawn = run(capsys, FILE)[1]
    shown = GUIDE.read_text(encoding="utf-8").partition("### `pipo graph")[2].split("```\n")[1]
    assert drawn.endswith(shown)


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, FILE, "--format", "mermaid")[1].startswith("flowchart TD\n")
    assert run(capsys, FILE, "--format", "dot")[1].startswith('digraph "tried" {\n')
    assert run(capsys, FILE, "--format", "svg")[0] == 2


def test_json_lists_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, FILE, "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert {key: said[key] for key in said if key != "nodes"} == {
        "name": "tried",
        "file": FILE,
        "loops": [{"node": "price", "back_to": "price", "max": 3}],
        "unused": ["sort.odd"],
        "delivered": {"check": "file_exists"},
    }
    assert [node["id"] for node in said["nodes"]][:4] == ["shop", "desk", "clock", "clean"]
    assert said["nodes"][3] == {
        "id": "clean",
        "kind": "transform",
        "label": "Tidy up",
        "from": ["shop", "desk"],
        "uses": "map",
    }
    assert run(capsys, FILE, "--json", "--format", "dot")[0] == 2


def test_a_file_that_fails_its_check_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    Path(FILE).write_text(ORDERS.replace("from: sort.large", "from: sort.larg"))
    code, out, err = run(capsys, FILE)
    assert (code, out) == (1, "")
    assert "orders.pipo:16:11  error  P011  `sort` has no branch `larg`" in err
    assert err.endswith(
        "error: orders.pipo does not pass its check\n  hint: mend it, then draw it again\n"
    )
    code, out, err = run(capsys, FILE, "--json")
    said = json.loads(out)
    assert (code, err, said["code"]) == (1, "", "invalid_pipeline")
    assert "P011" in [d["code"] for d in said["diagnostics"]]


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "none.pipo")[2].startswith("error: no such file: none.pipo\n")
    assert run(capsys, str(tmp_path))[2].startswith(f"error: {tmp_path} is a folder\n")
    Path(FILE).write_bytes(b"pipo: 1\nname: caf\xe9\n")
    assert "orders.pipo:2:10  error  P001  " in run(capsys, FILE)[2]


@pytest.mark.timeout(60)
def test_a_device_is_too_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the file is larger than 1 MiB" in run(capsys, "/dev/zero")[2]


def test_nothing_is_made_in_the_home(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, FILE)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
