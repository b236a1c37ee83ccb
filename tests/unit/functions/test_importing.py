"""Whether a module imports, found out in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipo.functions.code import Code
from pipo.functions.importing import import_fault

pytestmark = pytest.mark.slow


def code(folder: Path, source: str) -> Code:
    return Code("checked", "./x.fn.py", {"./x.fn.py": source, "./prices.py": "TAX = 2"}, folder)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("from . import prices\nassert prices.TAX == 2\nprint('noise' * 100_000)", ""),
        ("\ufeffx = 1", ""),
        ("import math\n\nimport nothing_like_it", "x.fn.py line 3: ModuleNotFoundError: No module"),
        ("raise ValueError('broken')", "x.fn.py line 1: ValueError: broken: `raise ValueError"),
        ("def f(:", "x.fn.py line 1: SyntaxError"),
        ("import sys\nsys.exit(3)", "x.fn.py line 2: sys.exit(3)"),
        ("import os\nos._exit(3)", "x.fn.py ends the process that imports it (exit status 3)"),
        ("x = bytearray(10**9)", "x.fn.py line 1: MemoryError"),
    ],
)
def test_importing(tmp_path: Path, source: str, fault: str) -> None:
    found = import_fault(code(tmp_path, source))
    assert found.startswith(fault) if fault else found == ""


def test_an_import_that_does_not_end_is_ended(tmp_path: Path) -> None:
    found = import_fault(code(tmp_path, "while True: pass"), timeout_s=0.5)
    assert found == "x.fn.py does not finish importing within 0.5 s"
