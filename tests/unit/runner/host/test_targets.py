"""Decision 16: what a target means, and what may be started at all."""

import os
from pathlib import Path

import pytest

from pipo.connectors.registry import manifests
from pipo.errors import BadRequest, InvalidPipeline, InvalidState, NotFound
from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo_runner.host.surroundings import Target
from pipo_runner.host.targets import drain_s, resolve

TEXT = """\
pipo: 1
name: {name}
input:
  via: push
lifetime:
  drain_timeout: 7s
output:
  from: input
  to: stdout
"""


def start(target: str, home: Home, workspace: Path) -> Target:
    return resolve(target, home=home, workspace=workspace, manifests=manifests())


@pytest.fixture
def workspace(home: Home) -> Path:
    folder = home.root / "work"
    (folder / "sub").mkdir(parents=True)
    for path, name in (("a.pipo", "a"), ("sub/b.pipo", "b"), ("plain", "c"), ("e.pipo", "engine")):
        (folder / path).write_text(TEXT.format(name=name))
    return folder


@pytest.mark.parametrize(
    ("target", "name"), [("a.pipo", "a"), ("./a.pipo", "a"), ("sub/b.pipo", "b"), ("plain", "c")]
)
def test_a_file_of_the_workspace(home: Home, workspace: Path, target: str, name: str) -> None:
    found = start(target, home, workspace)
    assert found == Target(name, str(workspace / target))


def test_an_absolute_file(home: Home, workspace: Path, tmp_path: Path) -> None:
    assert start(str(workspace / "a.pipo"), home, tmp_path).name == "a"


def test_a_name_that_the_home_knows(home: Home, workspace: Path) -> None:
    desired.write(home.pipeline("b"), Desired("stopped", str(workspace / "sub/b.pipo")))
    assert start("b", home, workspace) == Target("b", str(workspace / "sub/b.pipo"))
    with pytest.raises(NotFound, match="no pipeline named 'bb'"):
        start("bb", home, workspace)


def test_a_file_that_got_another_name(home: Home, workspace: Path) -> None:
    desired.write(home.pipeline("old"), Desired("stopped", str(workspace / "a.pipo")))
    with pytest.raises(InvalidState, match="names its pipeline 'a' now, not 'old'"):
        start("old", home, workspace)


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ("", BadRequest, "nothing to start"),
        ("none.pipo", NotFound, "there is no file"),
        ("./sub", BadRequest, "is a folder"),
        ("pipe.pipo", BadRequest, "is no plain file"),
        ("e.pipo", InvalidPipeline, "cannot be called `engine`"),
        ("bytes.pipo", BadRequest, "is not UTF-8 text"),
        ("wrong.pipo", InvalidPipeline, "wrong"),
    ],
)
def test_what_may_not_be_started(
    home: Home, workspace: Path, target: str, error: type[Exception], text: str
) -> None:
    os.mkfifo(workspace / "pipe.pipo")
    (workspace / "bytes.pipo").write_bytes(b"name: \xff")
    (workspace / "wrong.pipo").write_text(TEXT.format(name="w") + "outptu: 1\n")
    with pytest.raises(error, match=text) as caught:
        start(target, home, workspace)
    if isinstance(caught.value, InvalidPipeline):
        assert [f.line for f in caught.value.findings] == [2 if target == "e.pipo" else 10]


def test_how_long_it_may_drain(home: Home, workspace: Path) -> None:
    assert drain_s(str(workspace / "a.pipo"), home=home, manifests=manifests()) == 7.0
    assert drain_s("/nowhere.pipo", home=home, manifests=manifests()) == 120.0
