"""What is read of a module without running it."""

from __future__ import annotations

import pytest

from pipo.functions.outline import PARSED_HERE_BYTES, outline

SOURCE = b"""
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
PUBLIC = frozenset({"shape", "plain", "waiting", "guarded", "guarded_else", "on_posix"})


def test_public_functions_are_read_from_the_tree() -> None:
    assert outline(SOURCE, "x.fn.py").functions == PUBLIC


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (b"def f(:\n  pass", "x.fn.py line 1: invalid syntax: `def f(:`"),
        (b"x = 1\n\x00", "x.fn.py line 1: source code string cannot contain null bytes"),
        (b"x = '\xff'", "x.fn.py line 1: (unicode error) 'utf-8' codec can't decode"),
        (b"x = " + b"-" * 90_000 + b"1", "x.fn.py"),
    ],
)
def test_a_module_that_does_not_parse(source: bytes, fault: str) -> None:
    found = outline(source, "x.fn.py")
    assert found.fault.startswith(fault)
    assert not found.functions


@pytest.mark.parametrize(
    ("source", "package", "imports"),
    [
        ("from . import prices, tax as t", "", ["prices", "tax"]),
        ("from .prices import TAX", "", ["prices", "prices.TAX"]),
        ("from .a.b import c", "", ["a.b", "a.b.c"]),
        ("def f():\n    from . import late", "", ["late"]),
        ("from . import *", "", []),
        ("from .. import above", "", []),
        ("from . import near\nfrom .. import above", "pkg", ["pkg", "pkg.near", "above"]),
        ("from .. import x", "a.b", ["a", "a.x"]),
        ("import os, json\nfrom pathlib import Path", "", []),
    ],
)
def test_relative_imports_are_found(source: str, package: str, imports: list[str]) -> None:
    assert list(outline(source.encode(), "x.fn.py", package).imports) == imports


@pytest.mark.slow
def test_a_large_text_is_read_in_a_process_of_its_own() -> None:
    """R47: 5 MB of `fn` source."""
    large = b"from . import prices\nTEXT = '" + b"x" * 5_000_000 + b"'\n" + SOURCE
    assert len(large) > PARSED_HERE_BYTES
    found = outline(large, "x.fn.py")
    assert (found.functions, found.fault) == (PUBLIC, "")
    assert found.imports == ("prices",)
    broken = outline(large + b"def f(:\n", "x.fn.py")
    assert broken.fault.endswith("invalid syntax: `def f(:`")


@pytest.mark.soak
def test_a_tree_that_takes_too_much_memory_is_said_to() -> None:
    found = outline(b"a=[" + b"[1],[2]," * 1_200_000 + b"]", "x.fn.py")
    assert "cannot be read" in found.fault or "too large" in found.fault
    assert found.fault.startswith("x.fn.py")
