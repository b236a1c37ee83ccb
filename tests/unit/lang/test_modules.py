from __future__ import annotations

from pathlib import Path

import pytest

from pipo.lang.modules import import_fault, read

SOURCE = """
import os
VALUE = len
shape = lambda data, meta: data
def plain(data, meta): ...
async def waiting(data): ...
def _private(data): ...
class Thing:
    def method(self): ...
try:
    def guarded(data): ...
except ImportError:
    def guarded_else(data): ...
if os.name == "posix":
    def on_posix(data):
        def inner(): ...
"""


def test_public_functions_are_read_from_the_tree(tmp_path: Path) -> None:
    path = tmp_path / "x.fn.py"
    path.write_text(SOURCE)
    assert read(path).functions == {
        *("shape", "plain", "waiting", "guarded", "guarded_else", "on_posix")
    }


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (b"def f(:\n  pass", "x.fn.py line 1: invalid syntax: `def f(:`"),
        (b"x = 1\n\x00", "x.fn.py line 1: source code string cannot contain null bytes"),
        (b"x = '\xff'", "x.fn.py line 1: (unicode error) 'utf-8' codec can't decode"),
    ],
)
def test_a_module_that_does_not_parse(tmp_path: Path, source: bytes, fault: str) -> None:
    path = tmp_path / "x.fn.py"
    path.write_bytes(source)
    assert read(path).fault.startswith(fault)
    assert not read(path).functions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from . import prices\nassert prices.TAX == 2\nprint('noise')", ""),
        ("import math\n\nimport nothing_like_it", "x.fn.py line 3: ModuleNotFoundError: No module"),
        ("raise ValueError('broken')", "x.fn.py line 1: ValueError: broken: `raise ValueError"),
        ("def f(:", "x.fn.py line 1: SyntaxError"),
        ("import sys\nsys.exit(3)", "x.fn.py line 2: SystemExit: 3"),
        ("import os\nos._exit(3)", "x.fn.py ends the process that imports it (status 3)"),
        ("x = bytearray(10**9)", "x.fn.py line 1: MemoryError"),
    ],
)
def test_importing(tmp_path: Path, source: str, fault: str) -> None:
    (tmp_path / "prices.py").write_text("TAX = 2")
    path = tmp_path / "x.fn.py"
    path.write_text(source)
    found = import_fault(path)
    assert found.startswith(fault) if fault else found == ""


@pytest.mark.slow
def test_an_import_that_does_not_end_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "x.fn.py"
    path.write_text("while True: pass")
    assert import_fault(path, timeout_s=0.5) == "x.fn.py does not finish importing within 0.5 s"
