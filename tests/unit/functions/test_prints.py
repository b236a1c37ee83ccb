"""What functions print: whose it is, how much of it is kept, and what is masked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pipo.functions.prints import (
    CALL_LINES,
    LINE_CHARS,
    LINES_BURST,
    LINES_PER_S,
    Caller,
    PrintedLog,
    Prints,
)
from tests.unit.runner.pipeline.rig import FakeClock

ADA = Caller("shape", "P1")


class Written:
    """A pipe, its reader, and the lines that come of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.lines: list[tuple[str, str, str]] = []
        read, self.write_fd = os.pipe()
        os.set_blocking(read, False)
        self.read_fd = read
        log = PrintedLog(self._log, lambda text: text.replace("s3cr3t", "***"), self.clock)
        self.prints = Prints(read, log)

    def _log(self, level: str, text: str, *, action: str, **about: Any) -> None:
        self.lines.append((level, text, about.get("packet", "")))

    def call(self, raw: bytes) -> list[tuple[str, str, str]]:
        """The lines of a call that writes this."""
        self.lines.clear()
        self.prints.begin(ADA)
        for start in range(0, len(raw), 32_768):
            os.write(self.write_fd, raw[start : start + 32_768])
            self.prints.read()
        self.prints.end()
        return [*self.lines]


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written()
    yield made
    os.close(made.read_fd)
    os.close(made.write_fd)


def test_each_line_is_one_of_the_call(written: Written) -> None:
    raw = "one é\ntwo\n\nno end".encode()
    assert written.call(raw) == [("info", t, "P1") for t in ("one é", "two", "no end")]
    assert written.call(b"\xff\n") == [("info", "\\xff", "P1")]
    os.write(written.write_fd, b"by nobody\n")
    written.lines.clear()
    written.prints.read()
    assert written.lines == [("info", "by nobody", "")]


def test_a_record_of_logging_keeps_its_level_and_its_lines(written: Written) -> None:
    raw = b"no end\x1eerror\x1ffirst\x1dsecond\n\x1ewarning\x1fthird\n\x1estrange\x1ffourth\n"
    assert written.call(raw) == [
        ("info", "no end", "P1"),
        ("error", "first\nsecond", "P1"),
        ("warning", "third", "P1"),
        ("error", "fourth", "P1"),
    ]


def test_a_long_line_is_masked_and_cut(written: Written) -> None:
    edge = b"x" * (LINE_CHARS - 3) + b"s3cr3t" + b"y" * 300_000 + b"\nnext\n"
    first, second = written.call(edge)
    assert first == ("info", "x" * (LINE_CHARS - 3) + "***…", "P1")
    assert second == ("info", "next", "P1")


def test_what_a_call_prints_beyond_its_share_is_counted(written: Written) -> None:
    found = written.call(b"line\n" * (CALL_LINES + 7))
    assert len(found) == CALL_LINES + 1
    assert found[-1] == ("warning", "functions printed 7 more lines than are kept", "P1")
    assert written.call(b"line\n") == [("info", "line", "P1")]


def test_a_flood_is_counted_without_a_look_at_it(written: Written) -> None:
    found = written.call(b"line\n" * 100_000 + b"x" * 200_000 + b"\nlast\nrest")
    assert found[-1] == ("warning", "functions printed 99803 more lines than are kept", "P1")
    assert written.call(b"line\n") == [("info", "line", "P1")]


def test_what_nobody_printed_is_no_part_of_a_calls_share(written: Written) -> None:
    os.write(written.write_fd, b"stray\n" * (CALL_LINES + 5))
    written.prints.read()
    assert len(written.lines) == CALL_LINES
    found = written.call(b"line\n")
    assert found == [
        ("warning", "functions printed 5 more lines than are kept", ""),
        ("info", "line", "P1"),
    ]


def test_all_calls_together_have_so_many_lines_a_second(written: Written) -> None:
    kept = sum(len(written.call(b"line\n" * 100)) for _ in range(30))
    assert kept == LINES_BURST
    written.clock.passed_s += 0.1
    found = written.call(b"line\n" * 100)
    left_out = 30 * 100 - int(LINES_BURST)
    text = f"functions printed {left_out} more lines than are kept"
    assert found[0] == ("warning", text, "")
    assert len(found) == 1 + round(LINES_PER_S * 0.1)


def test_a_descriptor_that_is_gone_is_not_read(written: Written) -> None:
    written.prints.close()
    os.write(written.write_fd, b"another's\n")
    assert not written.prints.read()
    assert os.read(written.read_fd, 100) == b"another's\n"
