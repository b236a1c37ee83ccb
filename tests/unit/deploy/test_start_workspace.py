"""The runner container's beginning: which pipelines of the workspace are marked to run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from pipo.connectors import registry
from pipo.home import Home, desired

FILE = Path(__file__).resolve().parents[3] / "deploy" / "image" / "start_workspace.py"
PIPELINE = """\
pipo: 1
name: {name}
input: {{via: push}}
output: {{from: input, to: stdout}}
"""


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_image_start_workspace", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.ensure()
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.pipo").write_text(PIPELINE.format(name=name))
    return folder


def take_up_all(module: ModuleType, home: Home, workspace: Path) -> None:
    module.take_up_all(home, workspace, registry.manifests())


def test_every_new_pipeline_is_marked(module: ModuleType, home: Home, workspace: Path) -> None:
    take_up_all(module, home, workspace)
    assert home.pipeline_names() == ["one", "two"]
    mark = desired.read(home.pipeline("one"))
    assert mark is not None
    assert (mark.desired, mark.file) == ("running", str(workspace / "one.pipo"))


def test_a_stopped_pipeline_stays_stopped(module: ModuleType, home: Home, workspace: Path) -> None:
    stopped = desired.Desired(desired="stopped", file="/elsewhere/one.pipo")
    desired.write(home.pipeline("one"), stopped)
    take_up_all(module, home, workspace)
    assert desired.read(home.pipeline("one")) == stopped


def test_a_bad_file_is_reported_and_costs_no_other(
    module: ModuleType, home: Home, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "bad.pipo").write_text("pipo: 1\nname: bad\nsurprise: yes\n")
    (workspace / "latin.pipo").write_bytes(b"name: \xe9\n")
    take_up_all(module, home, workspace)
    assert home.pipeline_names() == ["one", "two"]
    said = capsys.readouterr().err
    assert f"{workspace}/bad.pipo is left out, it fails its check" in said
    assert f"{workspace}/bad.pipo:3:1  error  P002" in said
    assert f"{workspace}/latin.pipo is left out" in said


def test_only_the_workspace_itself_is_read(module: ModuleType, home: Home, workspace: Path) -> None:
    (workspace / "drafts").mkdir()
    (workspace / "drafts" / "three.pipo").write_text(PIPELINE.format(name="three"))
    take_up_all(module, home, workspace)
    assert home.pipeline_names() == ["one", "two"]


def test_the_process_becomes_the_command(
    module: ModuleType, home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[list[str]] = []
    monkeypatch.setenv("PIPO_HOME", str(home.root))
    monkeypatch.setenv("PIPO_WORKSPACE", str(workspace))
    monkeypatch.setattr("os.execvp", lambda file, command: became.append([file, *command]))
    module.main(["pipo-runner", "--id", "a"])
    assert became == [["pipo-runner", "pipo-runner", "--id", "a"]]
    assert home.pipeline_names() == ["one", "two"]


def test_a_home_that_cannot_be_used_is_left_to_the_service(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[str] = []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr("os.execvp", lambda file, command: became.append(file))
    module.main(["pipo-runner"])
    assert became == ["pipo-runner"]


def test_without_a_command_it_says_what_it_wants(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main([]) == 2
    assert "name the command" in capsys.readouterr().err


def test_a_command_that_is_not_there_is_named(
    module: ModuleType, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPO_HOME", str(home.root))
    monkeypatch.setenv("PIPO_WORKSPACE", str(home.root))
    assert module.main(["pipo-nothing"]) == 127
