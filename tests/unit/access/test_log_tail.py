from __future__ import annotations

from pathlib import Path

import pytest

from pipo.access import log_tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "x.log"


def test_no_file_is_no_lines(log: Path) -> None:
    assert log_tail.tail(log, 5) == log_tail.LogPage([], 0, False)
    assert log_tail.follow(log, 0) == log_tail.LogPage([], 0, False)
    assert log_tail.follow(log, 7).reset


def test_a_line_counts_once_it_is_whole(log: Path) -> None:
    log.write_bytes(b"one\ntwo\nth")
    assert log_tail.tail(log, 10) == log_tail.LogPage(["one", "two"], 8, False)
    assert log_tail.follow(log, 8) == log_tail.LogPage([], 8, False)
    log.write_bytes(b"one\ntwo\nthree\n")
    assert log_tail.follow(log, 8) == log_tail.LogPage(["three"], 14, False)


def test_the_tail_of_a_large_file_begins_at_a_line(log: Path) -> None:
    lines = [f"{n:07} {'x' * 100}" for n in range(20_000)]
    log.write_text("\n".join(lines) + "\n")
    page = log_tail.tail(log, 3)
    assert page.lines == lines[-3:]
    assert page.next == log.stat().st_size
    assert len(log_tail.tail(log, 1_000_000).lines) < 10_000
    assert log_tail.tail(log, 1_000_000).lines[0] in lines


def test_following_pages_through_everything_once(log: Path) -> None:
    lines = [f"line {n} é" for n in range(2_500)]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    seen: list[str] = []
    after = 0
    while page := log_tail.follow(log, after).lines:
        seen += page
        after = log_tail.follow(log, after).next
    assert seen == lines


def test_a_line_without_end_is_cut_and_goes_on(log: Path) -> None:
    log.write_bytes(b"x" * (log_tail.READ_BYTES_MAX + 5) + b"\n")
    first = log_tail.follow(log, 0)
    assert (len(first.lines[0]), first.next) == (log_tail.READ_BYTES_MAX, log_tail.READ_BYTES_MAX)
    assert log_tail.follow(log, first.next).lines == ["xxxxx"]


def test_a_rotated_log_begins_anew(log: Path) -> None:
    log.write_bytes(b"new\n")
    assert log_tail.follow(log, 1000) == log_tail.LogPage(["new"], 4, True)
