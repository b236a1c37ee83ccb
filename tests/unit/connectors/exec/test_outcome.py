"""What a run comes to: results, errors, cuts and masks."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused, WriteFailed
from pipo.connectors.exec import outcome
from pipo.connectors.exec.outcome import Ended, Stream
from pipo.connectors.exec.program import program

TOOL = program({"command": "tool", "cwd": "/w", "timeout": "1.5s", "success": [0, 3]})
SECRET = "s3cr3t-" + "x" * 20


def mask(text: str) -> str:
    return text.replace(SECRET, "***")


def printed(content: bytes, kept: int = 1 << 20) -> Stream:
    return Stream(content[-kept:], len(content))


def ended(out: bytes = b"", err: bytes = b"", **how: Any) -> Ended:
    made: dict[str, Any] = {"code": 0, "signal": None, "timed_out": False, "duration_ms": 7, **how}
    return Ended(**made, stdout=printed(out), stderr=printed(err))


def told(found: Ended) -> str:
    failure = outcome.failure(TOOL, found, mask)
    assert isinstance(failure, WriteFailed)
    return failure.message


@pytest.mark.parametrize("code", [0, 3])
def test_the_codes_of_success(code: int) -> None:
    assert outcome.failure(TOOL, ended(code=code), mask) is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ended(code=1), "tool exited with code 1"),
        (ended(b"out", b" bad\n worse\n", code=2), "tool exited with code 2: bad worse"),
        (ended(b"only out\n", code=2), "tool exited with code 2: only out"),
        (ended(err=f"no {SECRET}".encode(), code=2), "tool exited with code 2: no ***"),
        (ended(code=None, signal=11), "tool was ended by SIGSEGV"),
        (ended(code=None, signal=60), "tool was ended by signal 60"),
        (
            ended(code=None, signal=15, timed_out=True),
            "tool did not end within its timeout of 1.5s and was ended, with its process group",
        ),
        (ended(code=0, err=b"late", timed_out=True), "with its process group: late"),
    ],
)
def test_why_it_failed(found: Ended, message: str) -> None:
    assert told(found).endswith(message)


def test_the_end_of_what_it_printed_is_told_and_no_half_secret() -> None:
    """What is cut is masked first."""
    message = told(ended(err=b"x" * 1000 + SECRET.encode() + b"y" * 290, code=1))
    assert message.startswith("tool exited with code 1: …")
    assert message.endswith("***" + "y" * 290)
    assert "s3cr3t" not in message


def test_info_is_everything_about_the_run() -> None:
    files = program({"command": "tool", "cwd": "/w", "outputs": ["/w/a", "/w/b"]})
    assert outcome.result("info", files, ended(b"hi\n", b"\xff", code=3), mask) == {
        "exit_code": 3,
        "stdout": "hi\n",
        "stderr": "�",
        "duration_ms": 7,
        "files": ["/w/a", "/w/b"],
    }


def test_info_has_the_last_64_kb_of_a_stream_masked_before_it_is_cut() -> None:
    kept = outcome.INFO_BYTES + outcome.MARGIN_BYTES
    tail = b"z" * (outcome.INFO_BYTES - 10)
    stream = printed(b"a" * (2 * kept) + SECRET.encode() + tail, kept)
    found = Ended(0, None, False, 1, stream, printed("é".encode() * 40_000))
    made = outcome.result("info", TOOL, found, mask)
    assert made["stdout"] == "a" * 7 + "***" + tail.decode()
    assert made["stderr"] == "é" * (outcome.INFO_BYTES // 2)


def test_a_character_that_is_cut_is_left_out() -> None:
    stream = Stream("xéé".encode()[2:], 5)
    assert outcome.result("text", TOOL, Ended(0, None, False, 1, stream, stream), mask) == "é"


@pytest.mark.parametrize("content", [b"", b" hi \n", "é\0".encode()])
def test_text_is_standard_output_as_it_is(content: bytes) -> None:
    assert outcome.result("text", TOOL, ended(content), mask) == content.decode()


def test_text_and_json_are_masked() -> None:
    assert outcome.result("text", TOOL, ended(f"a {SECRET}".encode()), mask) == "a ***"
    raw = f'{{"{SECRET}": ["x{SECRET}", 12345678901234567890]}}'.encode()
    assert outcome.result("json", TOOL, ended(raw), mask) == {"***": ["x***", 12345678901234567890]}


@pytest.mark.parametrize("content", [b"", b"{nope", b"1 2", b"\xff", b'{"a":1,"a":2}'])
def test_json_that_is_none_fails(content: bytes) -> None:
    with pytest.raises(WriteFailed, match="tool printed what is no JSON"):
        outcome.result("json", TOOL, ended(content), mask)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_more_than_a_result_may_hold_is_refused(kind: str) -> None:
    at_limit = b'"' + b"x" * (outcome.OUTPUT_BYTES - 2) + b'"'
    assert outcome.result(kind, TOOL, ended(at_limit), mask)
    with pytest.raises(Refused, match="printed 1048577 bytes, more than the 1 MB"):
        outcome.result(kind, TOOL, ended(at_limit + b"\n"), mask)


def test_files_that_are_missing_are_named() -> None:
    assert outcome.missing(TOOL, []) is None
    one = outcome.missing(TOOL, ["/w/a"])
    assert one is not None
    assert one.message == "tool did not make /w/a"
    two = outcome.missing(TOOL, ["/w/a", "/w/b"])
    assert two is not None
    assert two.message == "tool did not make /w/a and 1 more"
