"""A path that is not there: what was probably meant, or where it was looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipo_cli.missing import no_such


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "orders.pipo").touch()
    (tmp_path / "orders.txt").touch()
    return tmp_path


@pytest.mark.parametrize("given", ["a/oders.pipo", "a/orders", "a/orders.yaml"])
def test_the_closest_file_is_named(folder: Path, given: str) -> None:
    error = no_such(Path(given))
    assert (error.message, error.hint) == (
        f"no such file: {given}",
        "did you mean a/orders.pipo?",
    )


def test_without_one_the_folder_is_told(folder: Path) -> None:
    for given in ("orders.pipo", "orders"):
        assert no_such(Path(given)).hint == f"looked in {folder}; a pipeline's file ends in .pipo"
    assert no_such(Path("b/orders.pipo"), "file or folder").hint == (
        f"cannot look into the folder {folder / 'b'}: check the spelling"
    )
