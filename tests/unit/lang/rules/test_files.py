from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from pipo.lang.check import Source, check
from pipo.lang.modules import MODULE_BYTES_LIMIT
from tests.unit.lang.reading import MANIFESTS, PUSH, STDOUT

FN = (
    PUSH
    + "fn: ./x.fn.py\nnodes: { n: { from: input, tap: fn.%s } }\noutput: { from: n, to: stdout }\n"
)
EXEC = (
    PUSH
    + "nodes: { n: { from: input, tap: exec, with: { command: date } } }\noutput: { from: n, to: stdout }\n"
)


class Folder:
    """A folder with pipeline files that are checked where they lie."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def check(
        self, text: str, home: Path | None = None, *, run: bool = False, quote: bool = True
    ) -> list[str]:
        file = self.write("p.pipo", text)
        reports = check([Source.read(file)], MANIFESTS, home, import_modules=run, quote=quote)
        self.messages = [f.message for f in reports[0].findings]
        self.hints = [f.hint for f in reports[0].findings]
        return [f.code for f in reports[0].findings]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "work")


def test_functions(folder: Folder) -> None:
    assert folder.check(FN % "shape") == ["P014"]
    folder.write("x.fn.py", "def shape(data, meta): ...\ndef _hidden(data): ...\n")
    assert folder.check(FN % "shape") == []
    assert folder.check(FN % "shapes") == ["P012"]
    assert folder.check(FN % "_hidden") == ["P012"]
    assert folder.check((FN % "shape").replace("fn: ./x.fn.py\n", "")) == ["P012"]
    folder.write("x.fn.py", "def shape(:\n")
    assert folder.check(FN % "shape") == ["P059"]
    assert folder.check(FN % "shape" + "concurrency: 0\n") == ["P002"]


@pytest.mark.slow
def test_modules_are_imported_only_on_request(folder: Folder) -> None:
    folder.write("x.fn.py", "import nothing_like_it\ndef shape(data): ...\n")
    assert folder.check(FN % "shape") == []
    assert folder.check(FN % "shape", run=True) == ["P059"]
    assert "x.fn.py line 1: ModuleNotFoundError" in folder.messages[0]
    assert folder.hints[0].startswith("install `nothing_like_it` into ")
    assert folder.hints[0].endswith("`from . import nothing_like_it`")
    folder.write("x.fn.py", "def shape(data): ...\n")
    assert folder.check(FN % "shape", run=True) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('{"type": "object"}', []),
        ("true", []),
        ('{"$schema": "https://nowhere.example/x", "type": "object"}', []),
        ("", ["P054"]),
        ("[1]", ["P054"]),
        ("5", ["P054"]),
        ('{"type": "objekt"}', ["P054"]),
        ('{"properties": {"a": {"minimum": "1"}}}', ["P054"]),
        ('{"pattern": "("}', ["P054"]),
        ('{"pattern": "^(?=a)b"}', ["P054"]),
        ("[" * 100_000, ["P054"]),
        ('{"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}', []),
        ('{"$ref": "#/$defs/b"}', ["P054"]),
        ('{"$ref": "file:///etc/hostname"}', ["P054"]),
        ('{"$ref": "#"}', ["P054"]),
        ('{"maximum": NaN}', ["P054"]),
    ],
)
def test_schema_files(folder: Folder, schema: str, expected: list[str]) -> None:
    folder.write("s.json", schema)
    text = PUSH.replace("via: push", "via: push, schema: s.json") + STDOUT
    assert folder.check(text) == expected
    agent = "agent: codex, with: { prompt: p, schema: ./s.json }"
    node = f"nodes: {{ n: {{ from: input, {agent} }} }}\noutput: {{ from: n, to: stdout }}"
    assert folder.check(PUSH + node) == expected


def test_a_pattern_that_is_right_elsewhere_says_what_it_may_not_have(folder: Folder) -> None:
    folder.write("s.json", '{"pattern": "^(?=a)b"}')
    assert folder.check(PUSH.replace("via: push", "via: push, schema: s.json") + STDOUT) == ["P054"]
    assert folder.messages == [
        '\'s.json\' is no JSON Schema: "^(?=a)b" is not a "regex"; '
        "there is no look-around and no back-reference"
    ]


def test_missing_files_and_templated_paths(folder: Folder) -> None:
    text = PUSH.replace("via: push", "via: push, schema: %s") + STDOUT
    assert folder.check(text % "nope.json") == ["P014"]
    assert folder.check(text % "../work") == ["P014"]
    assert folder.check(text % '"a\\0b"') == ["P014"]
    assert folder.check(text % "'${env.X}.json'") == []
    assert folder.check(PUSH + STDOUT + "fn: '${x}'\n") == []


class TestTrust:
    """P052."""

    def origin(self, folder: Folder, *files: str) -> None:
        hashes = {f: hashlib.sha256((folder.path / f).read_bytes()).hexdigest() for f in files}
        marker = {"template": "kit", "template_hash": "abc", "modules": hashes}
        folder.write(".pipo-origin.json", json.dumps(marker))

    def home(self, tmp_path: Path, *hashes: str) -> Path:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        (home / "trust.json").write_text(json.dumps({"trusted": list(hashes)}))
        return home

    def test_own_code_needs_no_trust(self, folder: Folder) -> None:
        folder.write("x.fn.py", "def shape(data): ...\n")
        folder.write(".pipo-origin.json", '{"template": "kit", "modules": {}}')
        assert folder.check(FN % "shape") == []
        assert folder.check(EXEC) == []

    def test_a_module_of_a_template(self, folder: Folder, tmp_path: Path) -> None:
        folder.write("x.fn.py", "def shape(data): ...\n")
        self.origin(folder, "x.fn.py")
        assert folder.check(FN % "shape") == ["P052"]
        assert folder.check(FN % "shape", self.home(tmp_path)) == ["P052"]
        assert folder.check(FN % "shape", self.home(tmp_path, "abc")) == []
        folder.write("x.fn.py", "def shape(data): return 1\n")
        assert folder.check(FN % "shape", self.home(tmp_path, "abc")) == ["P052"]
        assert "edited since" in folder.messages[0]

    def test_a_file_of_a_template_that_runs_programs(self, folder: Folder, tmp_path: Path) -> None:
        folder.write("p.pipo", EXEC)
        self.origin(folder, "p.pipo")
        assert folder.check(EXEC) == ["P052"]
        assert folder.check(EXEC, self.home(tmp_path, "abc")) == []
        assert folder.check(EXEC + "# edited\n", self.home(tmp_path, "abc")) == ["P052"]
        self.origin(folder, "p.pipo")
        assert folder.check(PUSH + STDOUT) == []

    def test_a_marker_that_cannot_be_read(self, folder: Folder) -> None:
        for marker in ("", "[]", '{"modules": 5}'):
            folder.write(".pipo-origin.json", marker)
            assert folder.check(EXEC) == []


def test_a_schema_is_never_fetched(folder: Folder) -> None:
    """The check reaches for nothing outside its folder, whatever a schema names."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        folder.write("s.json", json.dumps({"$ref": f"http://127.0.0.1:{port}/s.json"}))
        assert folder.check(PUSH.replace("via: push", "via: push, schema: s.json") + STDOUT) == [
            "P054"
        ]
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("x.fn.py", "9s3cret: 1\n", FN % "shape"),
        ("x.fn.py", "return = s3cret\n", FN % "shape"),
        ("s.json", '{"type": "s3cret"}', PUSH.replace("push", "push, schema: s.json") + STDOUT),
    ],
)
def test_a_text_from_elsewhere_shows_no_word_of_the_files_it_names(
    folder: Folder, name: str, content: str, text: str
) -> None:
    """A check of the API is told of the fault and its line, as for a file it may not read."""
    folder.write(name, content)
    codes = folder.check(text)
    assert folder.check(text, quote=False) == codes
    assert not any("s3cret" in message for message in folder.messages)


def test_a_file_that_is_no_pipeline_is_not_shown(folder: Folder) -> None:
    """Whoever may start a pipeline may name any file, a token's for one."""
    assert folder.check("s3cret-token") == ["P002"]
    assert folder.messages == ["the file must be a map of keys, found a text"]


def test_a_check_that_runs_no_code_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.fn.py").write_text("raise SystemExit(3)\ndef f(data): return data\n")
    source = Source(FN % "f", str(tmp_path / "p.pipo"))
    [report] = check([source], MANIFESTS)
    assert (report.findings, report.not_imported) == ([], ("./x.fn.py",))
    [report] = check([source], MANIFESTS, import_modules=True)
    assert [f.code for f in report.findings] == ["P059"]
    assert report.not_imported == ()
    (tmp_path / "x.fn.py").unlink()
    [report] = check([source], MANIFESTS)
    assert ([f.code for f in report.findings], report.not_imported) == (["P014"], ())


@pytest.mark.parametrize("name", ["a" * 300 + ".py", "a\0b", "loop.py", ".", "x/../../y", "\ud800"])
def test_a_name_that_no_file_can_have_is_a_missing_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / ".pipo-origin.json").write_text('{"modules": {"p.pipo": "0"}}')
    file = str(tmp_path / "p.pipo")
    quoted = json.dumps(name)
    if "\ud800" in name:  # YAML holds no half of a pair, a file's own name may.
        file, quoted = f"{tmp_path}/{name}/p.pipo", "x.py"
    for text in (
        PUSH + STDOUT + f"fn: {quoted}\n",
        PUSH.replace("via: push", f"via: push, schema: {quoted}") + STDOUT,
    ):
        assert [f.code for f in check([Source(text, file)], MANIFESTS)[0].findings] == ["P014"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"#" * (1024 * 1024 + 1))
    with (tmp_path / "bigger").open("wb") as bigger:
        bigger.truncate(MODULE_BYTES_LIMIT + 1)
    file = str(tmp_path / "p.pipo")
    [found] = check([Source(PUSH + STDOUT + "fn: bigger\n", file)], MANIFESTS)[0].findings
    assert (found.code, "larger than 16 MiB" in found.message) == ("P059", True)
    text = PUSH.replace("via: push", "via: push, schema: big") + STDOUT
    [found] = check([Source(text, file)], MANIFESTS)[0].findings
    assert (found.code, "larger than 1 MiB" in found.message) == ("P054", True)


@pytest.mark.parametrize("trust", ["[]", '{"trusted": 5}', '{"trusted": "h"}', "{}", "x", "null"])
@pytest.mark.parametrize("template_hash", ['["h"]', "null", "5", '"h"'])
def test_trust_that_cannot_be_read_is_none(trust: str, template_hash: str, tmp_path: Path) -> None:
    origin = f'{{"modules": {{"p.pipo": "0"}}, "template_hash": {template_hash}}}'
    (tmp_path / ".pipo-origin.json").write_text(origin)
    (tmp_path / "trust.json").write_text(trust)
    [report] = check([Source(EXEC, str(tmp_path / "p.pipo"))], MANIFESTS, tmp_path)
    assert [f.code for f in report.findings] == ["P052"]
