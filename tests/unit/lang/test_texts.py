"""The texts that a version is made of: which files, and one hash over all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pipo.connectors import registry
from pipo.errors import NotFound
from pipo.lang.check import Source, parse
from pipo.lang.model import Pipeline
from pipo.lang.texts import Texts, collect, named, on_disk

MODULE = """
from . import prices, helpers
from .rates.euro import of
import json


def shape(data):
    from .late import word
    return data
"""
FILES = {
    "./lib/people.fn.py": MODULE,
    "./lib/prices.py": "from .helpers import x\n",
    "./lib/helpers/__init__.py": "from .deep import y\nfrom ..prices import z\nfrom ...above import w\n",
    "./lib/helpers/deep.py": "y = 1\n",
    "./lib/rates/__init__.py": "",
    "./lib/rates/euro.py": "of = 1\n",
    "./lib/late.py": "word = 1\n",
    "./lib/unused.py": "no = 1\n",
    "./above.py": "w = 1\n",
    "./a.schema.json": "{}",
}
SOURCE = """pipo: 1
name: people
fn: ./lib/people.fn.py
inputs:
  a: { via: push, schema: ./a.schema.json }
  b: { via: push, schema: ./a.schema.json }
nodes: { shape: { from: [a, b], transform: fn.shape } }
output: { from: shape, to: stdout }
"""


def pipeline() -> Pipeline:
    return parse(Source(SOURCE, "/nowhere/people.pipo", FILES), registry.manifests())


def test_the_module_its_siblings_and_the_schemas_are_collected() -> None:
    """Decision 25: also those that a sibling names, and what a function imports late."""
    found = collect(SOURCE, pipeline(), FILES.get)
    assert found.source == SOURCE
    assert sorted(found.files) == sorted(FILES.keys() - {"./lib/unused.py", "./above.py"})
    assert all(found.files[path] == FILES[path] for path in found.files)


def test_each_file_is_named_once() -> None:
    assert named(pipeline()) == ["./lib/people.fn.py", "./a.schema.json"]


def test_a_file_that_is_gone_is_named() -> None:
    with pytest.raises(NotFound, match=r"people names \./a\.schema\.json, and there is no such"):
        collect(SOURCE, pipeline(), {**FILES, "./a.schema.json": None}.get)


def test_the_hash_is_of_everything_and_of_the_source_alone_where_it_names_nothing() -> None:
    """Edge 342, 355."""
    assert Texts("x").hash == hashlib.sha256(b"x").hexdigest()
    with_file = Texts("x", {"a": "1", "b": "2"})
    assert with_file.hash == Texts("x", {"b": "2", "a": "1"}).hash
    others = [Texts("x"), Texts("y", with_file.files), Texts("x", {"a": "1", "b": "3"})]
    others += [Texts("x", {"a": "1"}), Texts("x", {"a": "1", "c": "2"})]
    assert len({one.hash for one in [with_file, *others]}) == 6
    assert with_file.digests["a"] == hashlib.sha256(b"1").hexdigest()


def test_files_are_read_from_the_folder_of_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("né\r\n".encode())
    (tmp_path / "b.txt").write_bytes(b"\xff")
    read = on_disk(tmp_path)
    assert read("./a.txt") == "né\r\n"
    assert read("./c.txt") is None
    for bad in ("./b.txt", "."):
        with pytest.raises(NotFound, match="cannot be read"):
            read(bad)


def test_a_text_with_its_files_is_checked_without_the_disk(tmp_path: Path) -> None:
    """What a version is made of stands in the journal; the disk may say something else."""
    (tmp_path / "a.schema.json").write_text("not json")
    assert parse(Source(SOURCE, str(tmp_path / "p.pipo"), FILES), registry.manifests()).fn


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_a_sibling_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "prices.py")
    with pytest.raises(NotFound, match=r"prices\.py cannot be read: it is no regular file"):
        on_disk(tmp_path)("./prices.py")
