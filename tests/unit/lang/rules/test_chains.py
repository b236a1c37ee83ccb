from __future__ import annotations

import pytest

from pipo.lang.check import Source, check
from tests.unit.lang.reading import MANIFESTS, codes_of_run


def http(name: str, listen: int) -> str:
    return (
        f"pipo: 1\nname: {name}\ninput: {{ via: http, with: {{ path: /{name}, listen: {listen} }} }}\n"
        "output: { from: input, to: stdout }\n"
    )


def chained(name: str, senders: str = "", receiver: str = "") -> str:
    source = f"via: pipeline, with: {{ from: [{senders}] }}" if senders else "via: push"
    output = f"to: pipeline, with: {{ pipeline: {receiver} }}" if receiver else "to: stdout"
    return f"pipo: 1\nname: {name}\ninput: {{ {source} }}\noutput: {{ from: input, {output} }}\n"


def test_one_port_for_two_pipelines() -> None:
    found = codes_of_run({"a": http("a", 8600), "b": http("b", 8601), "c": http("c", 8600)})
    assert found == {"a": [], "b": [], "c": ["P039"]}


def test_one_bot_for_two_pipelines() -> None:
    bot = "pipo: 1\nname: %s\ninput: { via: telegram, with: { %s } }\noutput: { from: input, to: stdout }"
    found = codes_of_run(
        {
            "a": bot % ("a", ""),
            "b": bot % ("b", "bot: default"),
            "c": bot % ("c", "bot: c"),
            "d": bot % ("d", "bot: c, download: false"),
        }
    )
    assert found == {"a": [], "b": ["P056"], "c": [], "d": ["P056"]}


@pytest.mark.seed("C013", "C015")
def test_the_ends_of_a_chain_are_compared_within_a_run() -> None:
    sender, receiver = chained("s", receiver="r"), chained("r", senders="other")
    assert codes_of_run({"s": sender, "r": receiver}) == {"s": ["P064"], "r": []}
    assert codes_of_run({"s": sender}) == {"s": []}
    assert codes_of_run({"r": receiver}) == {"r": []}
    assert codes_of_run({"s": sender, "r": chained("r", senders="s")}) == {"s": [], "r": []}


def test_a_listed_sender_that_sends_elsewhere() -> None:
    receiver = chained("r", senders="s")
    assert codes_of_run({"s": chained("s"), "r": receiver}) == {"s": [], "r": ["P064"]}
    assert codes_of_run({"s": chained("s", receiver="x"), "r": receiver}) == {
        "s": [],
        "r": ["P064"],
    }
    templated = chained("s", receiver="'${data.p}'")
    assert codes_of_run({"s": templated, "r": receiver}) == {"s": [], "r": []}


def test_a_receiver_without_a_chain_input() -> None:
    assert codes_of_run({"s": chained("s", receiver="r"), "r": chained("r")}) == {
        "s": ["P064"],
        "r": [],
    }


def test_a_ring_is_reported_on_each_file() -> None:
    ring = {
        "a": chained("a", senders="c", receiver="b"),
        "b": chained("b", senders="a", receiver="c"),
        "c": chained("c", senders="b", receiver="a"),
        "d": chained("d", receiver="x"),
    }
    assert codes_of_run(ring) == {"a": ["P064"], "b": ["P064"], "c": ["P064"], "d": []}


def test_a_file_that_fails_does_not_hide_the_others() -> None:
    found = codes_of_run({"s": chained("s", receiver="r"), "r": "a: [", "t": chained("t")})
    assert found == {"s": [], "r": ["P001"], "t": []}


def test_a_pipeline_that_names_itself_is_no_ring() -> None:
    assert codes_of_run({"a": chained("a", receiver="a")}) == {"a": ["P063"]}


def test_hints_name_the_other_file() -> None:
    sources = [Source(chained("s", receiver="r"), "s.pipo"), Source(chained("r"), "in/r.pipo")]
    [finding] = check(sources, MANIFESTS)[0].findings
    assert finding.hint == "add `s` to a `via: pipeline` input of in/r.pipo"


def test_a_circle_of_chains_is_shown_in_the_order_of_its_packets() -> None:
    ring = {"a": chained("a", "b", "c"), "b": chained("b", "c", "a"), "c": chained("c", "a", "b")}
    reports = check([Source(text, file) for file, text in ring.items()], MANIFESTS)
    assert [[f.message for f in report.findings] for report in reports] == [
        ["the chain runs in a circle: a → c → b → a"]
    ] * 3


def test_of_several_files_of_one_name_one_that_fits_is_enough() -> None:
    right, wrong = chained("s", receiver="r"), chained("s", receiver="z")
    receiver = chained("r", senders="s")
    assert codes_of_run({"1": right, "2": wrong, "r": receiver}) == {"1": [], "2": [], "r": []}
    assert codes_of_run({"2": wrong, "1": right, "r": receiver}) == {"2": [], "1": [], "r": []}
    deaf = chained("r", senders="q")
    assert codes_of_run({"s": right, "1": receiver, "2": deaf}) == {"s": [], "1": [], "2": []}
    # Each of them is judged, not only the last one.
    assert codes_of_run({"1": right, "2": right, "r": deaf}) == {
        "1": ["P064"],
        "2": ["P064"],
        "r": [],
    }


def test_bots_of_one_token_are_told_by_where_the_secret_comes_from() -> None:
    def reader(name: str, secret: str, reference: str) -> str:
        return (
            f"pipo: 1\nname: {name}\nsecrets: {{ {secret}: {reference} }}\n"
            f'input: {{ via: telegram, with: {{ token: "${{secrets.{secret}}}" }} }}\n'
            "output: { from: input, to: stdout }\n"
        )

    found = codes_of_run(
        {
            "a": reader("a", "token", "env:ONE"),
            "b": reader("b", "token", "env:TWO"),
            "c": reader("c", "other", "env:ONE"),
        }
    )
    assert found == {"a": [], "b": [], "c": ["P056"]}
