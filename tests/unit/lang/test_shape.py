"""P002: keys and values, by the file's own schemas and by the connectors' manifests."""

from __future__ import annotations

import pytest

from .reading import HEAD, PUSH, STDOUT, codes, findings, found


def only(text: str) -> tuple[str, str]:
    [finding] = findings(text)
    assert finding.code == "P002"
    return finding.message, finding.hint


def output(settings: str, to: str = "sqlite") -> str:
    return PUSH + f"output: {{ from: input, to: {to}, with: {settings} }}\n"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            PUSH + STDOUT + "concurency: 2",
            "unknown key `concurency`",
            "did you mean `concurrency`?",
        ),
        (
            PUSH + STDOUT + "concurrency: 0",
            "`concurrency` takes at least 1, found the number 0",
            "",
        ),
        (
            PUSH + STDOUT + 'buffer: { max: "100" }',
            "`max` takes a whole number, found the text '100'",
            "write the number without quotes",
        ),
        (PUSH + STDOUT + "secrets: { a: s3cr3t }", "`a` takes a reference: env:NAME", ""),
        (PUSH + STDOUT + "lifetime: { ttl: 1 h }", "`ttl` takes a duration such as 250ms", ""),
        (PUSH + STDOUT + "lifetime: { ttl: '5m ' }", "`ttl` takes a duration such as 250ms", ""),
        (PUSH + STDOUT + "retention: { dlq: never }", "`dlq`", "`forever`"),
        (
            PUSH + STDOUT + "agent: { actions: [stop] }",
            "`actions[0]` cannot be the text 'stop'",
            "",
        ),
        (PUSH + STDOUT + "agent: { control: yes }", "`control` takes true or false", "write true"),
        (PUSH + STDOUT + "errors: { retry: .inf }", ".inf is no number that JSON can hold", ""),
        (
            PUSH + STDOUT + "errors: { then: retry }",
            "`then` cannot be the text 'retry'",
            "it takes",
        ),
        (
            PUSH + STDOUT + "delivered: { stall: { then: pause } }",
            "`after` is missing in `stall`",
            "How long",
        ),
        (
            PUSH + STDOUT + "delivered: { check: akc }",
            "there is no check `akc`",
            "did you mean `ack`",
        ),
        (
            PUSH + STDOUT + "delivered: { check: ack, with: { x: 1 } }",
            "unknown key `x` in `delivered.with`",
            "it takes no settings",
        ),
        (HEAD + STDOUT + "input: { via: kafka }", "there is no input `kafka`", "there are: http"),
        (HEAD + STDOUT + "input: { with: {} }", "`via` is missing in `input`", ""),
        (
            HEAD + STDOUT + "input: { via: http, with: { path: nope } }",
            "`path` takes a path that starts with `/`",
            "",
        ),
        (
            HEAD + STDOUT + "input: { via: http, with: { listen: '${env.PORT}' } }",
            "`listen` takes a whole number",
            "no template is taken here",
        ),
        (
            HEAD + STDOUT + "input: { via: push, validate: exists(data.x) }",
            "`validate` takes a list, found the text 'exists(data.x)'",
            "make it a list: an item a line, each behind `- `",
        ),
        (
            HEAD + STDOUT + "input: { via: http, with: { auth: { header: X } } }",
            "`equals` is missing in `auth`",
            "",
        ),
        (
            HEAD + STDOUT + "input: { via: system, with: { every: 5s, metrics: [cpu, cpu] } }",
            "`metrics` holds an item twice",
            "",
        ),
        (
            HEAD + STDOUT + "input: { via: telegram, with: { poll_every: 500ms } }",
            "`poll_every` takes at least 1s",
            "",
        ),
        (
            HEAD + STDOUT + "input: { via: push, with: { a: 1 } }",
            "unknown key `a` in `with`",
            "no sett",
        ),
        (
            PUSH + "output: { from: input, to: mysql }",
            "there is no output `mysql`",
            "there are: file",
        ),
        (PUSH + "output: { from: 5, to: stdout }", "`from` takes a text or a list", ""),
        (
            PUSH + "output: { from: [], to: stdout }",
            "`from` takes a list of at least 1, found 0",
            "",
        ),
        (output("{ path: x.db }"), "`table` is missing in `with`", "The table."),
        (PUSH + "output: { from: input, to: sqlite }", "`path` is missing", ""),
        (output("{ path: x, table: 'a b' }"), "`table` takes letters, digits and `_`", ""),
        (output("{ path: x, table: '${data.t}' }"), "`table` takes letters", ""),
        (output("{ path: x, table: t, create: no }"), "`create` takes true or false", "write true"),
        (
            output("{ path: x, table: t, columns: { packet_id: 1, 'a b': 2 } }"),
            "the name `a b` in `columns` is not letters, digits and `_`",
            "",
        ),
        (
            output("{ url: x, success: [200, true] }", "http"),
            "`success[1]` takes a whole number",
            "",
        ),
        (
            output("{ url: x, success: true }", "http"),
            "`success` takes a whole number or a text",
            "",
        ),
        (
            output("{ url: x, headers: { A: 5 } }", "http"),
            "`A` takes a text, found the number 5",
            "",
        ),
    ],
)
def test_messages(text: str, message: str, hint: str) -> None:
    found_message, found_hint = next(
        (f.message, f.hint) for f in findings(text) if f.code == "P002"
    )
    assert found_message.startswith(message)
    assert hint in found_hint
    assert found_hint


def test_a_missing_key_is_placed_on_its_block() -> None:
    assert found(PUSH + "output:\n  from: input\n  to: sqlite\n  with:\n    path: ./x.db\n") == [
        ("P002", 8, 5)
    ]
    assert found(PUSH + "output:\n  from: input\n  to: sqlite\n") == [
        ("P002", 5, 3),
        ("P002", 5, 3),
    ]


def test_an_unknown_key_is_placed_on_the_key_also_in_a_merge() -> None:
    text = PUSH + STDOUT.replace("stdout }", "stdout, with: { <<: *base } }")
    assert found("base: &base { nope: 1 }\n" + text) == [("P002", 1, 1), ("P002", 5, 48)]


def test_a_check_needs_one_of_two_keys() -> None:
    text = output("{ path: x, table: t }") + "delivered: { check: query, with: { params: [] } }"
    assert only(text)[0] == "`delivered.with` needs `sql` or `query`"


@pytest.mark.parametrize(
    "extra",
    [
        "output: { from: input, to: http, with: { url: '${data.u}', method: PUT, success: 204 } }",
        "output: { from: input, to: telegram, with: { chat_id: '${data.c}', text: x } }",
        "output: { from: input, to: telegram, with: { chat_id: -5 } }",
        "output: { from: input, to: pipeline, with: { pipeline: '${data.p}' } }",
        "output: { from: input, to: sqlite, with: { path: '${data.p}.db', table: t } }\n"
        "delivered: { check: row_count, with: { query: SELECT 1, min: '${data.n}' } }",
        "output: { from: input, to: file, with: { path: x } }\n"
        "delivered: { check: checksum, with: { sha256: '${data.h}' } }",
    ],
)
def test_templates_where_they_are_taken(extra: str) -> None:
    assert codes(PUSH + extra) == []


def test_numbers_and_versions() -> None:
    assert only(PUSH.replace("pipo: 1", 'pipo: "1"') + STDOUT)[0] == (
        "`pipo` must be 1, found the text '1'"
    )
    assert codes(PUSH.replace("pipo: 1", "pipo: 1.0") + STDOUT) == []


@pytest.mark.seed("O001")
def test_a_pipeline_has_exactly_one_output() -> None:
    assert codes(PUSH) == ["P002"]
    assert codes(PUSH + "output:\n  - { from: input, to: stdout }\n") == ["P002"]


@pytest.mark.seed("D058", "D059")
def test_a_stall_needs_after_and_knows_three_words() -> None:
    stall = PUSH + STDOUT + "agent: { control: true }\ndelivered: { stall: { %s } }"
    assert codes(stall % "then: pause") == ["P002"]
    for word in ("notify", "pause", "agent"):
        assert codes(stall % f"after: 5m, then: {word}") == []
    assert codes(stall % "after: 5m, then: halt") == ["P002"]


@pytest.mark.seed("O067")
def test_a_batch_needs_a_size() -> None:
    text = output("{ path: x, table: t }").replace("with:", "batch: { within: 2s }, with:")
    assert codes(text) == ["P002"]


@pytest.mark.parametrize(
    "block",
    [
        "lifetime: { ttl: '${env.X}' }",
        "errors: { delay: '${env.X}' }",
        "retention: { dlq: '${env.X}' }",
        "agent_budget: { warn_at: '${env.X}' }",
        "agent_budget: { reset_at: '${env.X}' }",
        "secrets: { a: '${env.X}' }",
    ],
)
def test_what_is_read_before_anything_is_rendered_takes_no_template(block: str) -> None:
    message, _ = only(PUSH + STDOUT + block)
    assert "found the text '${env.X}'" in message


def test_a_name_takes_no_template() -> None:
    assert only(PUSH.replace("tried", "'${env.X}'") + STDOUT)[0].startswith("`name` takes")


@pytest.mark.parametrize("success", ["204", '"204"', '"2xx"', '"200-299"', '[204, "2xx"]', "[]"])
def test_statuses(success: str) -> None:
    assert codes(output(f"{{ url: x, success: {success} }}", "http")) == []


@pytest.mark.parametrize(
    "one", ['"2"', '"2yy"', '"600"', '"200-"', '"2XX"', '" 204"', '"${env.X}"']
)
def test_a_text_that_is_no_status(one: str) -> None:
    wanted = 'takes a status from 100 to 599 such as 204, "2xx" or "200-299", found the text'
    message, hint = only(output(f"{{ url: x, success: {one} }}", "http"))
    assert message.startswith(f"`success` {wanted}")
    assert hint == "A status, a class or a range."
    message, _ = only(output(f"{{ url: x, success: [200, {one}] }}", "http"))
    assert message.startswith(f"`success[1]` {wanted}")


def test_a_number_that_is_no_status() -> None:
    below, above = (only(output(f"{{ url: x, success: {n} }}", "http"))[0] for n in (99, 600))
    assert below == "`success` takes at least 100, found the number 99"
    assert above == "`success` takes at most 599, found the number 600"


@pytest.mark.parametrize(
    ("sha256", "expected"),
    [
        ("aB" * 32, []),
        ("${data.h}", []),
        ("ab" * 31, ["P002"]),
        ("ab" * 33, ["P002"]),
        ("xy" * 32, ["P002"]),
    ],
)
def test_a_checksum_is_64_hex_digits(sha256: str, expected: list[str]) -> None:
    text = PUSH + "output: { from: input, to: file, with: { path: x } }\n"
    assert (
        codes(text + f"delivered: {{ check: checksum, with: {{ sha256: '{sha256}' }} }}")
        == expected
    )


@pytest.mark.parametrize(
    ("block", "key", "least", "short"),
    [
        (PUSH + STDOUT + "lifetime: { ttl: @ }", "ttl", "1ms", "0s"),
        (PUSH + STDOUT + "lifetime: { ttl: @ }", "ttl", "1ms", "0.9ms"),
        (HEAD + STDOUT + "input: { via: schedule, with: { every: @ } }", "every", "1ms", "0s"),
        (HEAD + STDOUT + "input: { via: system, with: { every: @ } }", "every", "1ms", "0.0d"),
        (HEAD + STDOUT + "input: { via: telegram, with: { poll_every: @ } }", "poll_every", "1s", "900ms"),
    ],
)  # fmt: skip
def test_a_duration_that_a_start_would_refuse_is_too_short(
    block: str, key: str, least: str, short: str
) -> None:
    (found,) = findings(block.replace("@", short))
    assert (found.code, found.line) == ("P002", 5 if "ttl" in block else 4)
    assert found.message == f"`{key}` takes at least {least}, found the text '{short}'"
    assert found.hint
    assert codes(block.replace("@", least)) == []


@pytest.mark.parametrize("span", ["9" * 400 + "d", "1000001d", "9" * 30 + "ms"])
def test_a_duration_ends_before_the_calendar_does(span: str) -> None:
    for block in (f"lifetime: {{ ttl: {span} }}", f"retention: {{ dlq: {span} }}"):
        [found] = findings(PUSH + STDOUT + block)
        assert (found.code, found.line) == ("P002", 5)
        assert "takes at most 1000000d" in found.message
    schedule = HEAD + STDOUT + f"input: {{ via: schedule, with: {{ every: {span} }} }}"
    assert codes(schedule) == ["P002"]
    assert codes(schedule.replace(span, "1000000d")) == []


@pytest.mark.parametrize(
    ("block", "hint"),
    [
        ("description: 5", "put quotes around it, so that it is a text"),
        ("nodes: { n: { from: input, filter: true } }", "put quotes around it"),
        ("delivered: { within: 10 }", "How long the check keeps looking."),
        ("description: {}", "What the pipeline is for."),
        ("delivered: { check: 5 }", "put quotes around it"),
        ("nodes: { n: { from: [5], tap: log } }", "put quotes around it"),
        ("nodes: { n: { from: [], tap: log } }", "Write what the message asks for"),
    ],
)
def test_the_hint_of_a_value_of_the_wrong_kind(block: str, hint: str) -> None:
    found = [f for f in findings(PUSH + STDOUT + block) if f.code == "P002"]
    assert [f.hint.startswith(hint) for f in found] == [True]


def test_wrong_names_are_named_each_and_nothing_else() -> None:
    text = "pipo: 1\nname: a\ninputs: { 1a: { via: push }, 2b: { via: push } }\n"
    expected = [("P002", 3, 11), ("P002", 3, 30)]
    assert found(text + "output: { from: [1a, 2b], to: stdout }") == expected


def test_of_very_many_unknown_keys_the_first_ones_are_told() -> None:
    """Each costs a search for what was meant, and the door of `check` is open to readers."""
    text = PUSH + STDOUT + "".join(f"k{number}: 1\n" for number in range(3000))
    told = [finding.message for finding in findings(text)]
    assert told == [f"unknown key `k{number}`" for number in range(50)]
