"""The editor's schema against the check: what the one refuses the other does, as far as it can say it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipo.connectors.contract import Manifest, OutputRole, Role
from pipo.connectors.schema import closed, duration, literal, text
from pipo.errors import Finding
from pipo.lang.check import Source, check
from pipo.lang.document import plain
from pipo.lang.editor_schema import DIALECT, editor_schema
from pipo.lang.json_schema import compiled
from pipo.lang.load import load
from pipo.lang.model import KINDS
from tests.contract.test_conformance import CHECK, RUNS
from tests.unit.lang.reading import HEAD, MANIFESTS, PUSH, STDOUT
from tests.unit.lang.test_seed_examples import SNIPPETS, WHOLE

ASKED = "nodes: { asked: { from: input, agent: opencode, with: { prompt: p, schema: answer.schema.json } } }\n"

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = editor_schema(MANIFESTS)
JUDGE = compiled(SCHEMA)

# What the schema refuses wherever the check finds it, and what it refuses in part.
EXPRESSED = {"P002", "P030", "P031", "P032", "P033", "P035", "P036", "P060"}
IN_PART = {"P015", "P038", "P061"}


def data_of(text: str) -> Any:
    root = load(text, "tried.pipo").root
    assert root is not None
    return plain(root)


def accepts(text: str) -> bool:
    return bool(JUDGE.is_valid(data_of(text)))


def found(text: str) -> list[Finding]:
    return check([Source(text, str(CHECK / "tried.pipo"))], MANIFESTS)[0].findings


def refused_codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings if f.severity == "error"}


def printed_files() -> Iterator[str]:
    """Every pipeline that loads: those of the conformance cases, the documents and the examples."""
    step = "nodes: { step: { from: input, tap: log } }\n"
    yield from WHOLE
    yield PUSH + ASKED + "output: { from: asked, to: stdout }\n"
    yield from (PUSH + step + snippet for snippet in SNIPPETS.values())
    for folder in (CHECK, ROOT / "examples"):
        for path in sorted(folder.rglob("*.pipo")):
            text = path.read_text(encoding="utf-8")
            if load(text, path.name).root is not None:
                yield text


FILES = list(dict.fromkeys(printed_files()))
CORPUS = [text for text in FILES if not refused_codes(found(text))]
TREES = [data_of(text) for text in CORPUS]


# ── the schema itself ────────────────────────────────────────────────────────


def test_it_is_a_schema_of_its_dialect() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert SCHEMA["$schema"] == DIALECT
    assert SCHEMA["$id"].startswith("urn:")


def test_it_names_no_host_and_no_word_of_ours() -> None:
    text = json.dumps({key: value for key, value in SCHEMA.items() if key != "$schema"})
    assert "://" not in text.replace("op://", "")
    assert '"x-' not in text


def test_every_key_says_what_it_is_for() -> None:
    def described(schema: Mapping[str, Any], place: str) -> Iterator[str]:
        for name, made in schema.get("properties", {}).items():
            target = SCHEMA["$defs"][made["$ref"][8:]] if "$ref" in made else made
            if not target.get("description"):
                yield f"{place}.{name}"
            yield from described(made, f"{place}.{name}")

    blocks = {name: made for name, made in SCHEMA["$defs"].items() if "type" in made}
    assert len(blocks) > 30
    missing = [*described(SCHEMA, ""), *(p for n, b in blocks.items() for p in described(b, n))]
    assert missing == []


def test_every_word_that_names_a_connector_or_a_check_says_what_it_does() -> None:
    def words(schema: Any) -> Iterator[tuple[list[str], list[str]]]:
        if isinstance(schema, dict):
            if "enumDescriptions" in schema:
                yield schema["enum"], schema["enumDescriptions"]
            for value in schema.values():
                yield from words(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from words(value)

    seen = set()
    for names, meanings in words(SCHEMA):
        assert len(names) == len(meanings)
        assert all(meanings), names
        seen.update(names)
    assert {"schedule", "map", "claude_code", "sqlite", "record_exists", "ack", "halt"} <= seen


def test_without_a_connector_it_is_still_a_schema() -> None:
    bare = editor_schema({})
    jsonschema_rs.meta.validate(bare)
    assert not compiled(bare).is_valid(data_of(PUSH + STDOUT))


def test_defaults_are_shown() -> None:
    assert SCHEMA["properties"]["concurrency"]["default"] == 4
    assert SCHEMA["$defs"]["output.sqlite"]["properties"]["mode"]["default"] == "insert"
    assert SCHEMA["$defs"]["delivered.sqlite"]["properties"]["check"]["default"] == "ack"


def test_an_installed_connector_is_in_it() -> None:
    own = Manifest(
        name="kafka",
        summary="Reads a topic.",
        input=Role(
            closed(required=("topic",), topic=literal("The topic."), wait=duration("How long."))
        ),
        output=OutputRole(closed(at=text("Where.", maxLength=5)), checks=("seen",)),
        checks={"seen": Role(closed(required=("by",), by=text("Who saw it.")))},
    )
    judge = compiled(editor_schema({**MANIFESTS, "kafka": own}))

    def valid(reading: str, writing: str = "", more: str = "") -> bool:
        output = f"output: {{ from: input, to: kafka{writing} }}\n"
        text = HEAD + f"input: {{ via: kafka, with: {reading} }}\n" + output + more
        return bool(judge.is_valid(data_of(text)))

    assert valid("{ topic: t, wait: 5s }")
    assert not valid("{}")
    assert not valid("{ topic: '${env.T}' }")
    assert valid("{ topic: '$${env.T}' }")
    assert not valid("{ topic: t, wait: soon }")
    assert not valid("{ topic: t }", ", with: { at: longer }")
    assert valid("{ topic: t }", ", with: { at: 'longer${data.x}' }")
    assert not valid("{ topic: t }", more="delivered: { check: seen }\n")
    assert valid("{ topic: t }", more="delivered: { check: seen, with: { by: me } }\n")
    assert not valid("{ topic: t }", more="delivered: { check: row_count, with: { query: q } }\n")


# ── against the check ────────────────────────────────────────────────────────


def test_the_corpus_is_one() -> None:
    uses = {m.name for m in MANIFESTS.values() if any(f": {m.name}" in text for text in CORPUS)}
    assert uses == set(MANIFESTS)


@pytest.mark.parametrize("text", CORPUS)
def test_what_has_the_right_shape_is_accepted(text: str) -> None:
    assert [str(error) for error in JUDGE.iter_errors(data_of(text))] == []


@pytest.mark.parametrize(
    "file",
    [
        file
        for case in RUNS
        for file, wanted in case["expected"].items()
        if EXPRESSED & {each["code"] for each in wanted if each["severity"] == "error"}
    ],
)
def test_what_the_cases_refuse_for_their_shape_is_refused(file: str) -> None:
    assert not accepts((CHECK / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (PUSH + STDOUT, True),
        (HEAD + STDOUT, False),
        (PUSH + "inputs: { a: { via: push } }\n" + STDOUT, False),
        (PUSH.replace("tried", "engine") + STDOUT, False),
        (PUSH + STDOUT + "delivered: { check: row_count, with: { query: x } }", False),
        (PUSH + STDOUT + "delivered: { check: external, with: {} }", True),
        (PUSH + STDOUT + "delivered: { with: { a: 1 } }", False),
        (PUSH + STDOUT + "errors: { then: drop }", False),
        (PUSH + STDOUT + "lifetime: { ttl: '${env.TTL}' }", False),
        (PUSH.replace("push", "push, on_invalid: { respond: 400 }") + STDOUT, False),
        (PUSH.replace("push", "http, on_invalid: { respond: 400 }") + STDOUT, True),
        (PUSH.replace("push", "http, with: { path: 'a${env.X}' }") + STDOUT, True),
        (PUSH.replace("push", "http, with: { path: a }") + STDOUT, False),
        (PUSH + "output: { from: input, to: stdout, batch: { size: 2 } }", False),
        (PUSH + "output: { from: input, to: sqlite }", False),
        (PUSH + STDOUT + "nodes: { a: { from: input, tap: fn.a, with: { any: [1] } } }", True),
        (PUSH + STDOUT + "nodes: { a: { from: input, tap: fn.1 } }", False),
        (PUSH + STDOUT + "nodes: { a: { from: input, agent: fn.a } }", False),
        (PUSH + STDOUT + "nodes: { a: { from: input, filter: x, tap: log } }", False),
        (PUSH + STDOUT + "nodes: { a: { from: input } }", False),
        (PUSH + STDOUT + "nodes: { a: { from: i, tap: log, on_error: { then: continue } } }", True),
        (
            PUSH + STDOUT + "nodes: { a: { from: i, filter: x, on_error: { then: continue } } }",
            False,
        ),
    ],
)
def test_single_rules(text: str, accepted: bool) -> None:
    assert accepts(text) == accepted


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value inside."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, item in inner:
        yield (*at, step)
        yield from paths(item, (*at, step))


def changed(value: Any, path: tuple[str | int, ...], made: Any) -> Any:
    """A copy with one value replaced; without it where `made` is `GONE`."""
    step, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[step] = changed(value[step], tuple(rest), made)
    elif made is GONE:
        del copy[step]
    else:
        copy[step] = made
    return copy


GONE = object()
WORDS = sorted(
    {word for name, manifest in MANIFESTS.items() for word in (name, *manifest.checks)}
    | {"ack", "external", "none", "fn.x", "fn.", "claude", "agent", "drop", "continue", "pause"}
)
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, -1, 2.5, 99, 404, 600, 70000, 10**20),
    *("", "x", "a b", "/x", "5s", "0s", "5 s", "1.5h", "5s\n", "٥s", "2xx", "200-299", "2yy"),
    *("json", "text", "append", "${data.x}", "a${env.x}b", "$${x}", "${", "env:X", "last 5"),
    *([], ["x"], [200], ["x", "x"], [{}], {}, {"x": 1}, {"path": "/x"}, {"then": "drop"}),
]
ADDED: dict[str, Any] = {
    "with": {},
    "batch": {"size": 2},
    "tap": "log",
    "filter": "data.x",
    "check": "status",
    "respond": 400,
    "on_invalid": {"respond": 400},
    "on_error": {"then": "continue"},
    "then": "continue",
    "path": "/x",
    "query": "q",
    "sql": "q",
    "inputs": {},
    "x": 1,
}


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A file of the corpus with one or two values changed, removed or added."""
    tree = draw(st.sampled_from(TREES))
    for _ in range(draw(st.integers(1, 2))):
        ways = list(paths(tree))
        if not ways:
            break
        path = draw(st.sampled_from(ways))
        match draw(st.sampled_from(["gone", "value", "word", "added"])):
            case "gone":
                tree = changed(tree, path, GONE)
            case "value":
                tree = changed(tree, path, draw(st.sampled_from(VALUES)))
            case "word":
                tree = changed(tree, path, draw(st.sampled_from(WORDS)))
            case _ if isinstance(path[-1], str):
                key = draw(st.sampled_from(sorted(ADDED)))
                made = draw(st.sampled_from([ADDED[key], *VALUES]))
                tree = changed(tree, (*path[:-1], key), made)
    return tree


def agree(tree: Any) -> None:
    """Refused by both or by neither, for everything that the schema can say."""
    findings = found(json.dumps(tree))
    codes = refused_codes(findings)
    if JUDGE.is_valid(tree):
        assert not codes & EXPRESSED, [str(f) for f in findings]
    else:
        assert codes & (EXPRESSED | IN_PART), [str(error) for error in JUDGE.iter_errors(tree)]


def positions() -> dict[tuple[Any, ...], tuple[Any, tuple[str | int, ...]]]:
    """A file and a path for each place of the format: a key by way of the connectors above it."""
    uses = ("via", "to", *KINDS, "check")
    made: dict[tuple[Any, ...], tuple[Any, tuple[str | int, ...]]] = {}
    for tree in TREES:
        for path in paths(tree):
            place: list[Any] = []
            block = tree
            for step in path:
                named = (
                    [block[key] for key in uses if key in block] if isinstance(block, dict) else []
                )
                place.append((step if isinstance(step, str) else 0, *map(str, named)))
                block = block[step]
            if path[0] in ("nodes", "inputs") and path[1:]:
                place[1] = ("*",)
            made.setdefault(tuple(place), (tree, path))
    return made


def mutations(
    tree: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """What may go wrong at one place: another value, none, or a key more."""
    names = WORDS if path[-1] in ("via", "to", "check", "then", *KINDS) else []
    yield from ((path, made) for made in (GONE, *VALUES, *names))
    block = tree
    for step in path:
        block = block[step]
    if isinstance(block, dict):
        yield from (((*path, key), made) for key, made in ADDED.items() if key not in block)


# There are some 24,000 of them: an eighth each time, all of them in `make soak`.
EIGHTHS = [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 8))]


@pytest.mark.slow
@pytest.mark.parametrize("eighth", EIGHTHS)
def test_schema_and_check_agree_on_every_value_of_a_kind_at_every_place(eighth: int) -> None:
    wrong = {}
    every = ((tree, *one) for tree, path in positions().values() for one in mutations(tree, path))
    for tree, to, made in islice(every, eighth, None, 8):
        try:
            agree(changed(tree, to, made))
        except AssertionError as error:
            wrong[to, repr(made)] = str(error)[:300]
    assert wrong == {}


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_schema_and_check_agree(tree: Any) -> None:
    agree(tree)
