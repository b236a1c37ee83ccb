"""`pipo schema`: the same JSON, wherever it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipo.connectors.registry import manifests
from pipo.lang.editor_schema import editor_schema
from pipo_cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_it_prints_the_schema_of_this_installation(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "schema")
    assert json.loads(out) == editor_schema(manifests())
    assert out.startswith('{\n  "$schema": "')
    assert out.endswith("}\n")


def test_json_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "schema", "--json") == printed(capsys, "schema")


def test_it_needs_no_home_and_no_gateway(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("PIPO_HOME", str(home))
    monkeypatch.setenv("PIPO_URL", "http://127.0.0.1:1")
    assert printed(capsys, "schema")
    assert not home.exists()


def test_it_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "sqlite"]) == 2
    assert capsys.readouterr().err.startswith("error: Got unexpected extra argument (sqlite)")
