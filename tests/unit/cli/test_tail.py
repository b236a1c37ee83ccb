"""Following a file that is written, rotated, cut, or not there yet."""

from pathlib import Path

from pipo_cli.tail import Tail


def test_only_what_comes_after_the_opening(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("old\n")
    tail = Tail(log)
    assert tail.lines() == []
    with log.open("a") as file:
        file.write("new\nhal")
        file.flush()
        assert tail.lines() == ["new"]
        file.write("f\n")
    assert tail.lines() == ["half"]
    tail.close()


def test_a_file_that_comes_later_is_read_from_its_head(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "x.log")
    assert tail.lines() == []
    (tmp_path / "x.log").write_text("first\n")
    assert tail.lines() == ["first"]
    tail.close()


def test_rotation_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("")
    tail = Tail(log)
    with log.open("a") as file:
        file.write("before\n")
    log.rename(tmp_path / "x.log.1")
    log.write_text("after\n")
    assert [*tail.lines(), *tail.lines()] == ["before", "after"]
    tail.close()


def test_a_cut_file_is_read_from_its_head(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("a long line\n")
    tail = Tail(log, from_start=True)
    assert tail.lines() == ["a long line"]
    log.write_text("new\n")
    assert tail.lines() == ["new"]
    tail.close()
