"""Decision 16: what a target means, and what may be started at all."""

import os
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.connectors.registry import manifests
from pipo.errors import BadRequest, Forbidden, InvalidPipeline, InvalidState, NotFound
from pipo.home import Home, desired, registry
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import ServiceEntry
from pipo.home.sent import Sent, file_of, keep
from pipo_runner.host.surroundings import Target
from pipo_runner.host.targets import drain_s, refuse_unheard, resolve

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


def start(target: str | Sent, home: Home, workspace: Path, *, code: bool = False) -> Target:
    return resolve(
        target, home=home, workspace=workspace, manifests=manifests(), uploaded_code=code
    )


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


def test_a_file_that_was_moved_is_told_of_as_the_one_it_was_started_from(
    home: Home, workspace: Path
) -> None:
    """A path relative to the workspace was never asked for."""
    desired.write(home.pipeline("b"), Desired("stopped", str(workspace / "gone.pipo")))
    with pytest.raises(NotFound, match=r"b was started from .*gone\.pipo, and that file") as caught:
        start("b", home, workspace)
    assert caught.value.hint == "start it by its file, where that is now: pipo start FILE"


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


HTTP = """\
pipo: 1
name: a
input: {{ via: http, with: {{ path: /a{listen} }} }}
output: {{ from: input, to: stdout }}
"""


def test_what_takes_requests_says_so_and_where(home: Home, workspace: Path) -> None:
    for listen, port in ((", listen: 8790", 8790), ("", None)):
        (workspace / "a.pipo").write_text(HTTP.format(listen=listen))
        found = start("a.pipo", home, workspace)
        assert (found.over_http, found.listen) == (True, port)
    assert start("sub/b.pipo", home, workspace).over_http is False


def test_requests_want_a_gateway_or_a_port(home: Home) -> None:
    """Edge 450."""
    served, unserved = Target("a", "/a", True, 8790), Target("a", "/a", True)
    refuse_unheard(Target("a", "/a"), {}, home)
    refuse_unheard(served, {}, home)
    refuse_unheard(unserved, {"listen": 8790}, home)
    with pytest.raises(InvalidState, match="no gateway runs") as caught:
        refuse_unheard(unserved, {}, home)
    assert "--listen 8790" in caught.value.hint
    registry.write_service(home, ServiceEntry("gateway", "g", 1, "here", "", "", 1))
    lease = Lease.acquire(registry.service_lease(home, "gateway", "g"), clock=SystemClock())
    refuse_unheard(unserved, {}, home)
    lease.release()


# ── texts ────────────────────────────────────────────────────────────────────

FN = """\
pipo: 1
name: s
fn: ./s.fn.py
input: { via: push }
nodes:
  clean: { from: input, transform: fn.clean }
  run: { from: clean, tap: exec, with: { command: 'true' } }
output: { from: run, to: stdout }
"""
CODE = {"./s.fn.py": "def clean(data):\n    return data\n"}


def test_a_text_is_judged_with_what_was_sent_and_written_nowhere(
    home: Home, workspace: Path
) -> None:
    text = Sent("s", FN, CODE)
    found = start(text, home, workspace, code=True)
    assert (found.name, found.sent) == ("s", text)
    assert found.file == str(file_of(home.pipeline("s"), text))
    assert not home.pipeline("s").folder.exists()
    # A file beside it is none that was sent.
    Path(found.file).parent.mkdir(parents=True)
    (Path(found.file).parent / "s.fn.py").write_text(CODE["./s.fn.py"])
    with pytest.raises(InvalidPipeline, match=r"^s\.pipo:3:5: P0\d\d .*s\.fn\.py"):
        start(Sent("s", FN), home, workspace, code=True)


def test_a_text_may_run_no_code_unless_the_operator_says_so(home: Home, workspace: Path) -> None:
    with pytest.raises(Forbidden) as caught:
        start(Sent("s", FN, CODE), home, workspace)
    assert caught.value.message == (
        "fn: ./s.fn.py, node 'run' (exec) of s is code that was sent, and "
        "engine.allow_uploaded_code is off"
    )
    assert "engine.allow_uploaded_code: true" in caught.value.hint


def test_a_text_bears_the_name_that_it_is_sent_under(home: Home, workspace: Path) -> None:
    with pytest.raises(BadRequest, match="names its pipeline 's', not 'x'"):
        start(Sent("x", FN, CODE), home, workspace, code=True)
    with pytest.raises(BadRequest, match="no pipeline name"):
        start(Sent("../x", FN, CODE), home, workspace)


def test_a_text_that_was_kept_is_read_with_its_files(home: Home, workspace: Path) -> None:
    text = Sent("s", FN.replace("name: s", "name: s\nlifetime: { drain_timeout: 3s }"), CODE)
    file = str(file_of(home.pipeline("s"), text))
    keep(home.pipeline("s"), text, workspace)
    desired.write(home.pipeline("s"), Desired("stopped", file))
    assert start("s", home, workspace).file == file
    assert drain_s(file, home=home, manifests=manifests()) == 3.0


def test_how_long_it_may_drain(home: Home, workspace: Path) -> None:
    assert drain_s(str(workspace / "a.pipo"), home=home, manifests=manifests()) == 7.0
    assert drain_s("/nowhere.pipo", home=home, manifests=manifests()) == 120.0
