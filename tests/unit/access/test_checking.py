"""The check of a text that someone sent: the findings of a file's check, and no code run."""

from __future__ import annotations

from pathlib import Path

from pipo.access import answers
from pipo.access.checking import check_text
from pipo.home import Home
from pipo.rpc.stubs import pipo_pb2

TEXT = """\
pipo: 1
name: sent
fn: ./x.fn.py
input: { via: push }
nodes: { n: { from: input, tap: fn.f } }
output: { from: n, to: stdot }
"""


async def check(text: str, file: Path) -> pipo_pb2.CheckReply:
    request = pipo_pb2.CheckRequest(source=text, file=str(file))
    return await check_text(request, Home(file.parent / "home"))


async def test_the_answer_has_the_findings_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "x.fn.py").write_text("def f(data): return data\n")
    reply = await check(TEXT, tmp_path / "p.pipo")
    assert not reply.ok
    assert [(d.code, d.line, d.col) for d in reply.diagnostics] == [("P002", 6, 24)]


async def test_a_text_runs_no_code_and_the_answer_says_so(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    module = f"open({str(ran)!r}, 'w')\nimport no_such_module\ndef f(data): return data\n"
    (tmp_path / "x.fn.py").write_text(module)
    reply = await check(TEXT.replace("stdot", "stdout"), tmp_path / "p.pipo")
    assert not ran.exists()
    assert answers.checked(reply) == {
        "ok": True,
        "diagnostics": [],
        "not_imported": ["./x.fn.py"],
    }
