"""Places that cannot be written: what is said, and that nothing half-written stays."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Output, WriteFailed
from pipo.connectors.file import locking, replacing
from tests.contract.connectors import contract
from tests.contract.connectors.contract import Settings, write
from tests.contract.connectors.disk import Files
from tests.contract.connectors.files import (
    FORMATS,
    LOGGED,
    content,
    file_case,
    ids,
    logged,
    put,
    settings,
    side_file,
)
from tests.mounts import remount, small_disk

STYLES = [(file_format, mode) for file_format in FORMATS for mode in ("append", "write")]
BIG = {"n": 1, "s": "x" * 300_000}


def files_of(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def data(key: str, **more: Any) -> tuple[str, Any]:
    return key, {"id": key, "n": 1, "s": "", **more}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with small_disk(tmp_path / "small") as place:
        yield place


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_full_disk_leaves_the_file_as_it_was(
    file_format: str, mode: str, small: Path
) -> None:
    where = settings(small, file_format, mode)
    output = file_case(file_format, mode).build(small)
    await write(output, where, data("a"))
    before = content(where)
    with pytest.raises(WriteFailed, match="No space left on device") as caught:
        await write(output, where, data("b"), data("c", **BIG))
    assert caught.value.hint == "free some disk space"
    assert content(where) == before
    assert not [name for name in contract.names(small) if name.endswith("-new")]
    await write(output, where, data("b"), data("c"), repeat="recovered")
    await output.close()
    assert ids(where) == (["a", "b", "c"] if mode == "append" else ["c"])


@pytest.mark.parametrize("file_format", LOGGED)
async def test_a_disk_that_is_full_for_the_side_file_alone(
    file_format: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The begin fails: nothing happened. The done fails: the record stands and counts."""
    where = settings(small, file_format)
    output = file_case(file_format).build(small)
    await write(output, where, data("a"))
    before = files_of(small)
    real = os.write
    good = 0

    def full(handle: int, text: Any) -> int:
        """After `good` whole writes one that is short, and none any more."""
        nonlocal good
        good -= 1
        if good >= 0 or not is_side_file(handle):
            return real(handle, text)
        if good == -1:
            return real(handle, bytes(text)[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(WriteFailed, match="No space left"):
            await write(output, where, data("b"))
        assert files_of(small) == before
        good = 2
        await write(output, where, data("b"))
    await write(output, where, data("b"), data("c"), repeat="recovered")
    await write(output, where, data("b"), data("d"), repeat="repeated")
    await output.close()
    assert ids(where) == ["a", "b", "c", "d"]
    assert len([entry for entry in logged(where) if entry[0] == "done"]) == 4


def is_side_file(handle: int) -> bool:
    return os.readlink(f"/proc/self/fd/{handle}").endswith("-keys")


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_folder_that_is_mounted_read_only(file_format: str, mode: str, small: Path) -> None:
    where = settings(small, file_format, mode)
    output = file_case(file_format, mode).build(small)
    await write(output, where, data("a"))
    await output.close()
    before = files_of(small)
    remount(small, "ro")
    again = file_case(file_format, mode).build(small)
    with pytest.raises(WriteFailed, match="Read-only file system") as caught:
        await write(again, where, data("b"))
    await again.close()
    assert caught.value.hint == "the file system is mounted read-only"
    assert files_of(small) == before


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_folder_without_permission_names_the_mending_command(
    file_format: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the refusal is the kernel's in name only."""
    where = settings(tmp_path, file_format, mode)
    real = os.open

    def refused(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest)

    output = file_case(file_format, mode).build(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(WriteFailed, match=r"cannot write .*this process runs as") as caught:
            await write(output, where, data("a"))
    assert caught.value.hint.startswith("mend it with: ")
    assert contract.names(tmp_path) == []
    await write(output, where, data("a"))
    await output.close()
    assert ids(where) == ["a"]


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_place_that_is_no_plain_file(file_format: str, mode: str, tmp_path: Path) -> None:
    where = settings(tmp_path, file_format, mode)
    os.mkfifo(where["path"])
    output = file_case(file_format, mode).build(tmp_path)
    with pytest.raises(WriteFailed, match="is not a plain file"):
        await write(output, where, data("a"))
    await output.close()
    assert contract.names(tmp_path) == [Path(where["path"]).name]


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_name_that_is_too_long(file_format: str, mode: str, tmp_path: Path) -> None:
    where = {**settings(tmp_path, file_format, mode), "path": str(tmp_path / ("x" * 256))}
    output = file_case(file_format, mode).build(tmp_path)
    with pytest.raises(WriteFailed, match="File name too long"):
        await write(output, where, data("a"))
    await output.close()
    assert contract.names(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "fchmod"])
@pytest.mark.parametrize(("file_format", "mode"), [("json", "append"), ("csv", "write")])
async def test_a_failed_replacement_leaves_the_old_file_and_no_other(
    file_format: str, mode: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format, mode)
    output = file_case(file_format, mode).build(tmp_path)
    await write(output, where, data("a"))
    before = files_of(tmp_path)

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(WriteFailed, match="Input/output error"):
            await write(output, where, data("b"))
    assert files_of(tmp_path) == before
    await write(output, where, data("b"), repeat="recovered")
    await output.close()
    assert ids(where)[-1] == "b"


@pytest.mark.parametrize(("file_format", "mode"), [("json", "append"), ("text", "append")])
async def test_a_writer_that_does_not_end_is_waited_for_and_then_told(
    file_format: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format, mode)
    output = file_case(file_format, mode).build(tmp_path)
    await write(output, where, data("a"))
    held = side_file(where) if file_format == "text" else Path(replacing.name_of_new(where["path"]))
    handle = os.open(held, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    monkeypatch.setattr(locking, "TRIES_MAX", 3)
    with pytest.raises(WriteFailed, match="another process is writing to it"):
        await write(output, where, data("b"))
    if file_format == "json":
        await output.recover(where)
        assert held.name in contract.names(tmp_path)
    monkeypatch.setattr(locking, "TRIES_MAX", 3000)
    waiting = asyncio.ensure_future(write(output, where, data("b"), repeat="recovered"))
    await asyncio.sleep(0)
    os.close(handle)
    await waiting
    await output.close()
    assert ids(where) == ["a", "b"]
    assert Path(replacing.name_of_new(where["path"])).name not in contract.names(tmp_path)


async def test_what_a_crash_left_of_a_replacement_is_removed(tmp_path: Path) -> None:
    where = settings(tmp_path, "json", "write")
    left = {"path": replacing.name_of_new(where["path"])}
    output = file_case("json", "write").build(tmp_path)
    put(left, b"half")
    await output.recover(where)
    assert contract.names(tmp_path) == []
    put(left, b"half")
    os.chmod(left["path"], 0o777)
    await write(output, where, data("a"))
    await output.close()
    assert contract.names(tmp_path) == ["a.json"]
    assert not os.stat(where["path"]).st_mode & 0o111


@pytest.mark.parametrize(("file_format", "mode"), STYLES)
async def test_a_place_that_cannot_be_mended_is_told_as_any_other(
    file_format: str, mode: str, tmp_path: Path
) -> None:
    """Whatever stands there: the process that starts goes on (its caller takes ConnectorError)."""
    (tmp_path / "occupied").write_text("")
    for path in ("occupied/x", "x" * 300, "none/x"):
        where = {**settings(tmp_path, file_format, mode), "path": str(tmp_path / path)}
        output = file_case(file_format, mode).build(tmp_path)
        with suppress(WriteFailed):
            await output.recover(where)
        await output.close()
    assert contract.names(tmp_path) == ["occupied"]


@pytest.mark.parametrize("mode", ["append", "write"])
@pytest.mark.parametrize("file_format", FORMATS)
async def test_an_unknown_side_file_or_link_is_no_way_around(
    file_format: str, mode: str, tmp_path: Path
) -> None:
    """A link under the new file's name is not followed: what it leads to stays as it is."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    where = settings(tmp_path, file_format, mode)
    os.symlink(elsewhere, replacing.name_of_new(where["path"]))
    output = file_case(file_format, mode).build(tmp_path)
    if mode == "write" or file_format == "json":
        with pytest.raises(WriteFailed, match="symbolic links"):
            await write(output, where, data("a"))
    else:
        await write(output, where, data("a"))
    await output.close()
    assert elsewhere.read_bytes() == b"mine"


async def test_a_file_that_was_emptied_by_hand_gets_a_header_again(tmp_path: Path) -> None:
    where: Settings = settings(tmp_path, "csv")
    output = file_case("csv").build(tmp_path)
    await write(output, where, data("a"))
    put(where, b"")
    await write(output, where, data("b"), data("a"), repeat="repeated")
    await output.close()
    assert content(where) == b"id,n,s\nb,1,\na,1,\n"


async def known(where: Settings, folder: Path) -> Output:
    """An output that has opened its file and written nothing yet; the journal knows of `a`."""
    before = file_case(where["format"]).build(folder)
    flush = await write(before, where, data("a"))
    await before.close()
    output = file_case(where["format"]).build(folder)
    await output.open(contract.kept(flush))
    await output.recover(where)
    return output


@pytest.mark.parametrize("file_format", LOGGED)
async def test_an_append_that_cannot_be_cut_back_is_found_by_the_next(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format)
    output = await known(where, tmp_path)
    real = os.fdatasync

    def fails(handle: int, *_: int) -> None:
        if is_side_file(handle):
            return real(handle)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(WriteFailed, match="Input/output error"):
            await write(output, where, data("b"))
    assert ids(where) == ["a", "b"]
    await write(output, where, data("b"), data("c"), repeat="recovered")
    await output.close()
    assert ids(where) == ["a", "b", "c"]


@pytest.mark.parametrize("file_format", LOGGED)
async def test_what_is_added_by_hand_after_a_failed_append_stays(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format)
    output = await known(where, tmp_path)
    real = os.fdatasync

    def fails(handle: int) -> None:
        if not is_side_file(handle):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(WriteFailed):
            await write(output, where, data("b", s="long" * 20))
    line = {"csv": b"hand,1,\n", "text": b'{"id":"hand"}\n'}[file_format]
    put(where, content(where) + line)
    await write(output, where, data("b", s="long" * 20), repeat="recovered")
    await output.close()
    assert ids(where) == ["a", "hand", "b"]


@pytest.mark.parametrize("file_format", LOGGED)
async def test_what_a_frozen_twin_appended_meanwhile_is_found(
    file_format: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format)
    output = await known(where, tmp_path)
    twin = file_case(file_format).build(tmp_path)
    await write(twin, where, data("b"))
    await twin.close()
    await write(output, where, data("b"), data("c"), repeat="recovered")
    await output.close()
    assert ids(where) == ["a", "b", "c"]


@pytest.mark.parametrize("file_format", LOGGED)
async def test_in_files_that_somebody_else_put_there_anything_may_stand(
    file_format: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format)
    output = await known(where, tmp_path)
    contract.swap_for_a_copy(where["path"], tmp_path / "moved")
    contract.swap_for_a_copy(str(side_file(where)), tmp_path / "moved-keys")
    await write(output, where, data("a"), data("c"), repeat="recovered")
    await output.close()
    assert ids(where) == ["a", "c"]
