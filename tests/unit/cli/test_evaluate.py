"""`pipo eval`: values, errors with their place, contexts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pipo_cli import evaluate
from pipo_cli.main import main
from pipo_cli.render.values import EXCERPT_MAX, excerpt

CONTEXT = {
    "data": {"name": "Zoë", "age": 20, "id": 123456789012345678901234567890},
    "meta": {"packet_id": "p1"},
}


class Eval:
    """Runs `pipo eval` over CONTEXT."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.context = folder / "context.json"
        self.context.write_text(json.dumps(CONTEXT))

    def alone(self, *words: str) -> tuple[int, str, str]:
        code = main(["eval", *words])
        out, err = self._capsys.readouterr()
        return code, out, err

    def __call__(self, *words: str) -> tuple[int, str, str]:
        return self.alone("--context", str(self.context), *words)


@pytest.fixture
def evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Eval:
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "home"))
    return Eval(tmp_path, capsys)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("data.age >= 18", "true"),
        ("data.name", '"Zoë"'),
        ("data.nope", "undefined"),
        ("[data.nope, 0 / 0]", "[null,null]"),
        ("data.id", "123456789012345678901234567890"),
        ("{b: 1, a: data.nope}", '{"b":1}'),
        ("0 / 0", "NaN"),
        ("(-1) / 0", "-Infinity"),
        ("1 / 0", "Infinity"),
        ("0 * -1", "-0"),
        ("1e21", "1e+21"),
        ('"\\ud83d"', '"\\ud83d"'),
    ],
)
def test_values_as_text(evaluated: Eval, text: str, shown: str) -> None:
    assert evaluated(text) == (0, f"{shown}\n", "")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("data.age", {"value": 20}),
        ("data.id", {"value": 123456789012345678901234567890}),
        ("null", {"value": None}),
        ("data.nope", {"undefined": True}),
        ("0 / 0", {"number": "NaN"}),
        ("0 * -1", {"number": "-0"}),
    ],
)
def test_values_as_json(evaluated: Eval, text: str, answer: Any) -> None:
    code, out, err = evaluated(text, "--json")
    assert (code, json.loads(out), err) == (0, answer, "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hello ${data.name}!", "hello Zoë!"),
        ("${data.name}", '"Zoë"'),
        ("${data.nope}", "undefined"),
        ("${data.nope} ", " "),
        ("$${plain}", "${plain}"),
        ("", ""),
        ("1 + 1", "1 + 1"),
        ('half ${"\\ud83d"}', "half \\ud83d"),
    ],
)
def test_templates(evaluated: Eval, text: str, shown: str) -> None:
    assert evaluated("--template", text) == (0, f"{shown}\n", "")


@pytest.mark.parametrize(
    "words",
    [["-1 + 3"], ["--", "-1 + 3"], ["-1 + 3", "--template", "--json"], ["--json", "--", "-1 + 3"]],
)
def test_a_text_that_begins_with_a_minus_sign(evaluated: Eval, words: list[str]) -> None:
    code, out, err = evaluated(*words)
    shown = {
        (False, False): "2",
        (True, True): '{"value": "-1 + 3"}',
        (True, False): '{"value": 2}',
    }
    assert (code, out, err) == (0, shown["--json" in words, "--template" in words] + "\n", "")


def test_a_file_may_begin_with_a_minus_sign_and_an_option_may_be_wrong(evaluated: Eval) -> None:
    assert "cannot read -none: " in evaluated.alone("--context", "-none", "1")[2]
    assert evaluated.alone("--tempalte", "1")[0] == 2
    assert evaluated.alone("-1", "-2")[0] == 2
    assert evaluated.alone("-h")[1].startswith("Usage: pipo eval ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["lenn(data)"],
            "error: there is no helper `lenn`, at character 1\n  lenn(data)\n  ^\n"
            "  hint: did you mean `len`? the helpers are: ",
        ),
        (
            ["data.age > 1 && mta.x"],
            "error: there is no variable `mta` here, at character 17\n"
            "  data.age > 1 && mta.x\n"
            "                  ^\n"
            "  hint: did you mean `meta`? the variables are: data, meta\n",
        ),
        (
            ["--template", "Zoë: ${trim( data.age )}"],
            "error: trim() takes a string, not a number, at character 8\n"
            "  Zoë: ${trim( data.age )}\n"
            "         ^\n",
        ),
        (
            ["--template", "a ${dta.x}"],
            "error: there is no variable `dta` here, at character 5\n  a ${dta.x}\n      ^\n",
        ),
        (
            ["1 +\n  data.age = 3"],
            "error: `=` (assignment) is not allowed, at character 16\n"
            "    data.age = 3\n"
            "             ^\n"
            "  hint: to compare, write `==`\n",
        ),
        ([""], "error: the expression is empty, at character 1\n"),
    ],
)
def test_errors_show_their_place(evaluated: Eval, words: list[str], error: str) -> None:
    code, out, err = evaluated(*words)
    assert (code, out) == (1, "")
    assert err.startswith(error)


def test_errors_as_json_have_three_fields(evaluated: Eval) -> None:
    code, out, err = evaluated("len(data.name) + len(7)", "--json")
    message = "len() takes no number"
    said = {"error": {"kind": "runtime", "message": message, "position": 17}}
    assert (code, json.loads(out), err) == (1, said, "")


def test_without_a_context_there_are_no_variables(evaluated: Eval) -> None:
    code, _, err = evaluated.alone("data.age")
    assert code == 1
    assert "the variables are: none; give variables with --context FILE, or - for" in err
    assert evaluated.alone("true || data.age") == (0, "true\n", "")


def test_the_context_comes_from_standard_input(
    evaluated: Eval, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b'{"data": 7}'))
    monkeypatch.setattr("sys.stdin", stdin)
    assert evaluated.alone("data + 1", "--context", "-") == (0, "8\n", "")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "is not JSON: "),
        ("", "is not JSON: the text is empty"),
        ('{"a": 1, "a": 2}', "is not JSON: the key 'a' stands twice in one object"),
        ("[1]", "holds no JSON object"),
    ],
)
def test_a_bad_context(evaluated: Eval, content: str, error: str) -> None:
    evaluated.context.write_text(content)
    code, out, err = evaluated("1")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {evaluated.context} {error}")
    assert '  hint: it holds one object, its keys the variables: {"data": ' in err
    code, out, err = evaluated("1", "--json")
    assert (code, err, json.loads(out)["code"]) == (1, "", "bad_request")


def test_a_context_that_cannot_be_read(evaluated: Eval, tmp_path: Path) -> None:
    evaluated.context.unlink()
    assert f"cannot read {evaluated.context}: No such file or directory" in evaluated("1")[2]
    assert "Is a directory" in evaluated.alone("1", "--context", str(tmp_path))[2]


@pytest.mark.timeout(60)
def test_a_context_without_an_end_is_too_large(evaluated: Eval) -> None:
    code, _, err = evaluated.alone("1", "--context", "/dev/zero")
    assert (code, err.splitlines()[0]) == (1, "error: /dev/zero is larger than 16 MiB")


def test_data_of_any_depth_is_printed(evaluated: Eval) -> None:
    deep = "[" * 500 + "]" * 500
    evaluated.context.write_text(f'{{"data": {deep}}}')
    assert evaluated("data") == (0, f"{deep}\n", "")
    assert evaluated("data", "--json") == (0, f'{{"value": {deep}}}\n', "")


def test_what_is_too_long_to_print_is_the_languages_own_error(
    evaluated: Eval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.lang.utf16.TEXT_LIMIT", 10)
    code, out, _ = evaluated("[1, 2, 3, 4, 5, 6]", "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (1, "runtime")


def test_bytes_that_the_locale_did_not_decode(evaluated: Eval) -> None:
    typed = "'käse'".encode().decode("ascii", "surrogateescape")
    assert evaluated(typed) == (0, '"käse"\n', "")
    assert evaluated("\udcff")[2].startswith("error: the expression is not UTF-8: byte 0\n")


def test_nothing_is_made_in_the_home(evaluated: Eval, tmp_path: Path) -> None:
    evaluated("data")
    assert sorted(tmp_path.iterdir()) == [evaluated.context]


def test_an_excerpt_of_a_long_line() -> None:
    line = "".join(str(n % 10) for n in range(500))
    for position in (0, 5, 250, 495, 500):
        shown, caret = excerpt(line, position)
        assert len(shown) <= EXCERPT_MAX + 8
        assert shown[caret.index("^") : caret.index("^") + 1] == line[position : position + 1]
    assert excerpt("漢字 + x", 5) == ["  漢字 + x", "         ^"]
    assert excerpt("a\x1b[31m = 1", 7) == ["  a [31m = 1", "         ^"]


def test_the_limit_is_that_of_a_packet() -> None:
    assert evaluate.CONTEXT_BYTES_MAX == 16 * 1024 * 1024
