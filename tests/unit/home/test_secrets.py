"""Secrets come from where they say; a value is in no message."""

from pathlib import Path

import pytest

from pipo.errors import BadRequest
from pipo.home import secrets


def program(folder: Path, text: str) -> dict[str, str]:
    path = folder / "op"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_each_kind_of_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("from file\n")
    environ = program(tmp_path, 'echo "$@"') | {"PW": "from env"}
    monkeypatch.setenv("PATH", str(tmp_path))
    refs = {"a": "env:PW", "b": f"file:{file}", "c": "op://v/i/f"}
    assert secrets.resolve(refs, environ) == {
        "a": "from env",
        "b": "from file",
        "c": "read --no-newline op://v/i/f\n",
    }


def test_every_missing_one_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    refs = {
        "a": "env:NOPE",
        "b": f"file:{tmp_path}/none",
        "c": f"file:{tmp_path}/bin",
        "d": "hunter2",
    }
    with pytest.raises(BadRequest) as caught:
        secrets.resolve(refs, {})
    for part in ("secret 'a'", "NOPE is not set", "secret 'b'", "No such file", "not UTF-8"):
        assert part in caught.value.message
    assert "set NOPE" in caught.value.hint


def test_a_failing_op_repeats_nothing_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = program(tmp_path, "echo s3cr3t-; echo s3cr3t- >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadRequest, match="exit code 3") as caught:
        secrets.resolve({"c": "op://v/i/f"}, environ)
    assert "s3cr3t" not in caught.value.message + caught.value.hint
