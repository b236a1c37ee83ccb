"""Where things lie, and how folders come to be."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipo.errors import BadRequest, Forbidden, Unavailable
from pipo.home import Home, home_from
from pipo.home import permissions as words
from tests.mounts import remount, small_disk


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_home_comes_from_option_variable_or_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/ada")
    monkeypatch.delenv("PIPO_HOME", raising=False)
    assert home_from(None).root == Path("/people/ada/.pipo")
    monkeypatch.setenv("PIPO_HOME", "/var/lib/pipo")
    assert home_from(None).root == Path("/var/lib/pipo")
    assert home_from("/else").root == Path("/else")


def test_ensure_makes_group_shared_folders_and_sets_the_umask(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home")
    home.ensure()
    for folder in (home.root, home.services, home.pipelines, home.service_logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o2770
    (home.run / "x").touch()
    assert stat.S_IMODE((home.run / "x").stat().st_mode) == 0o660
    home.ensure()


def test_ensure_leaves_an_existing_folder_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Home(tmp_path).ensure()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["..", "", "a/b", "A", "a_b", "a\n", "é"])
def test_a_name_cannot_climb_out_of_the_home(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="is no pipeline name"):
        Home(tmp_path).pipeline(name)


def test_pipeline_names_are_folders_with_a_name(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.pipeline_names() == []
    home.ensure()
    for name in ("b", "a-1", "Odd"):
        (home.pipelines / name).mkdir()
    (home.pipelines / "file").touch()
    assert home.pipeline_names() == ["a-1", "b"]


def as_stranger(home: Home) -> str:
    """What `ensure` says to a process of uid 1234, in a child, since uids do not come back."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(5678)
            os.setuid(1234)
            home.ensure()
        except Forbidden as error:
            os.write(write, f"{error.message}|{error.hint}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as said:
        return said.read()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_a_foreign_folder_is_named_with_owner_mode_and_remedy(tmp_path: Path) -> None:
    outer = Path(os.path.realpath(tmp_path))
    for folder in (outer, *list(outer.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    root = outer / "home"
    root.mkdir(0o755)
    message, hint = as_stranger(Home(root)).split("|")
    assert message == (
        f"cannot write {root}: this process runs as 1234:5678, "
        "the path belongs to 0:0 with mode 0755"
    )
    assert hint == f"mend it with: sudo chown -R 1234:5678 {root}"
    assert list(root.iterdir()) == []


def test_the_remedy_is_the_least_that_helps(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o400)
    error = words.refused(file, doing="read")
    assert error.hint.endswith(f"chmod u+rw {file}")
    missing = words.refused(file.parent / "a" / "b", doing="write")
    assert f"{tmp_path / 'a' / 'b'}, since {tmp_path}: " in missing.message


def test_a_read_only_file_system_is_said_plainly(tmp_path: Path) -> None:
    error = words.explain(tmp_path, OSError(30, "Read-only file system"), doing="write")
    assert "read-only" in error.message


def test_a_full_disk_says_what_helps(tmp_path: Path) -> None:
    error = words.explain(tmp_path, OSError(28, "No space left on device"), doing="write")
    assert error.message == f"cannot write {tmp_path}: No space left on device"
    assert error.hint == "make room on its disk, and try again"


def test_a_home_on_a_read_only_mount_is_no_matter_of_owners_and_modes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home") as root:
        remount(root, "ro")
        with pytest.raises(Unavailable) as refused:
            Home(root).ensure()
    assert refused.value.message == f"cannot write {root}: its file system is read-only"
    assert refused.value.hint.startswith("mount the home read-write")
