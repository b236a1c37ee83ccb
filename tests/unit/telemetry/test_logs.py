"""Log lines: their form, their escaping, their masking."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipo.telemetry import logs
from pipo.telemetry.redaction import Redactor


class StoppedClock:
    def now_ms(self) -> int:
        return 1_791_666_828_263

    def monotonic(self) -> float:
        return 0.0

    def jitter(self, span_s: float) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logs.mask(Redactor())
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_is_time_level_prose_action_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("runner", pipeline="signups", clock=StoppedClock())
    logs.logger("x").info("pipeline started", version=3, why="it was asked", action="start")
    assert lines(capsys) == [
        "2026-10-10T21:13:48.263Z info  pipeline started  action=start version=3 "
        'why="it was asked" service=runner pipeline=signups'
    ]


def test_values_read_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("x", clock=StoppedClock())
    logs.logger("x").warning("w", a=None, b=True, c=1.5, d={"k": [1]}, e='say "hi"', f="")
    (line,) = lines(capsys)
    assert line.split("warn  w  ")[1] == (
        'a=null b=true c=1.5 d="{"k":[1]}" e="say \\"hi\\"" f="" service=x'
    ).replace('"{"k":[1]}"', '{"k":[1]}')


def test_no_value_can_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("x", clock=StoppedClock())
    logs.logger("x").info(
        "one\ntwo", a="1\n2026-10-10T21:13:48.263Z info  lies", b="\x1b[31m\u2028"
    )
    assert len(lines(capsys)) == 1


def test_a_traceback_follows_its_line_indented(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("x", clock=StoppedClock())
    try:
        raise ValueError("out of cheese")
    except ValueError:
        logs.logger("x").exception("it failed", action="try")
    head, *trace = lines(capsys)
    assert head.endswith("error it failed  action=try service=x")
    assert trace
    assert all(line.startswith("  ") for line in trace)
    assert trace[-1] == "  ValueError: out of cheese"


def test_lines_of_other_libraries_look_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("x", clock=StoppedClock())
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("foreign").error("a %s", "b", exc_info=True, extra={"action": "z"})
    head, *trace = lines(capsys)
    assert head == "2026-10-10T21:13:48.263Z error a b  action=z service=x"
    assert trace[-1] == "  ValueError: inner"


def test_levels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("x", level="warning", clock=StoppedClock())
    logs.logger("x").info("quiet")
    assert lines(capsys) == []
    monkeypatch.setenv("PIPO_LOG_LEVEL", "debug")
    logs.configure("x", clock=StoppedClock())
    logs.logger("x").debug("loud")
    assert len(lines(capsys)) == 1


def test_secrets_are_masked_in_text_keys_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("x", clock=StoppedClock())
    logs.mask(Redactor(["s3cr3t-word"]))
    try:
        raise ValueError("s3cr3t-word")
    except ValueError:
        logs.logger("x").exception("got s3cr3t-word", url="http://u:s3cr3t-word@h/")
    text = "\n".join(lines(capsys))
    assert "s3cr3t" not in text
    assert "http://u:***@h/" in text


def test_with_a_file_lines_go_to_both(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "gateway.log"
    logs.configure("gateway", file=file, clock=StoppedClock())
    logs.logger("x").info("serving")
    assert file.read_text().splitlines() == lines(capsys)


def test_what_cannot_be_written_shows_nothing_of_the_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logs.configure("runner", file=Path("/dev/full"), clock=StoppedClock())
    logs.mask(Redactor(["hunter2-hunter2"]))
    for _ in range(3):
        logs.logger("test").info("asked", action="ask", token="hunter2-hunter2")
    logging.getLogger("other").info("wants a number: %d", "hunter2-hunter2")
    found = capfd.readouterr().err.splitlines()
    assert "hunter2" not in "".join(found)
    # Each line of ours on standard error, and one word for each handler that failed.
    assert len([line for line in found if "action=ask" in line]) == 3
    lost = [line for line in found if "action=ask" not in line]
    start = "lines of the log are lost until it can be written: "
    assert sorted(lost) == [f"{start}No space left on device", f"{start}TypeError"]


def test_a_line_that_was_cut_swallows_no_later_one(tmp_path: Path) -> None:
    file = tmp_path / "p.log"
    file.write_text("a whole one\nhalf of o")
    logs.configure("runner", file=file, clock=StoppedClock())
    logs.logger("test").info("again")
    first, cut, new = file.read_text().splitlines()
    assert (first, cut) == ("a whole one", "half of o")
    assert "again" in new
