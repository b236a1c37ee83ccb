"""Pipelines drawn in text: what stands where, and that every line leads somewhere."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings

from pipo.errors import BadRequest
from pipo.lang.model import Pipeline
from pipo.lang.steps import Steps
from pipo_cli.render.lanes import LANES_MAX, WIDTH, lines
from pipo_cli.render.tables import width
from tests.unit.lang.drawn import pipelines
from tests.unit.lang.reading import HEAD, PUSH, STDOUT, model

ORDERS = (
    HEAD
    + """
description: Orders, sorted
inputs:
  shop: { via: http, with: { path: /orders } }
  desk: { via: push }
  clock: { via: schedule, with: { every: 5m } }
nodes:
  clean: { from: [shop, desk], transform: map, with: { data: { a: 1 } }, label: Tidy up }
  sort:
    from: [clean, clock]
    route: { vip: data.vip, large: data.total > 100, odd: data.odd, rest: else }
  greet: { from: sort.vip, tap: log }
  price:
    from: sort.large
    transform: map
    with: { data: { n: 1 } }
    loop: { back_to: price, until: data.n > 3, max: 3 }
  both: { from: [sort.vip, sort.rest], tap: log }
output: { from: [greet, price, both], to: file, with: { path: ./o.jsonl } }
delivered: { check: file_exists, within: 5s }
"""
)

DRAWN = """\
tried: Orders, sorted

  ○        shop       input      http /orders
  │
  │ ○      desk       input      push
  ├─╯ → clean
  │ ○      clock      input      schedule 5m
  │ │
  ● │      clean      transform  map  (Tidy up)
  ╰─┤ → sort
    ◆      sort       route
  ╭─┤ vip → greet
  │ ├─╮ vip → both
  │ ├─┼─╮ large → price
  │ ├╴│ │ odd → nobody takes it, its packets end as filtered
  │ ╰─┤ │ rest → both
  │   │ │
  ●   │ │  greet      tap        log
  │   │ │
  │   │ ●  price      transform  map
  │   │ │ back to price until data.n > 3, at most 3 times, then dead_letter
  ├───┼─╯ → output
  │   ●    both       tap        log
  ├───╯ → output
  ◎        output     output     file ./o.jsonl
  │
  ✓        delivered  check      file_exists, within 5s, else dead_letter
"""

# What each sign connects to.
UP = set("│├┤┼╰╯●◆◎✓")
DOWN = set("│├┤┼╮╭○●◆◎")
RIGHT = set("├┼╭╰─")
LEFT = set("┤┼╮╯─")


def test_fan_in_fan_out_branches_and_a_loop() -> None:
    assert "\n".join(lines(model(ORDERS))) + "\n" == DRAWN


def test_the_smallest_pipeline() -> None:
    assert lines(model(PUSH + STDOUT)) == [
        "tried",
        "",
        "  ○  input      input   push",
        "  │",
        "  ◎  output     output  stdout",
        "  │",
        "  ✓  delivered  check   ack",
    ]


def test_plain_signs_are_ascii() -> None:
    drawn = lines(model(ORDERS), ascii_only=True)
    assert all(line.isascii() for line in drawn)
    assert "  |   | *  price      transform  map" in drawn
    assert "  | '-+ | rest -> both" in drawn
    assert "  +-' -> clean" in drawn


def test_the_authors_words_stay_in_a_plain_drawing() -> None:
    text = PUSH + "nodes: { a: { from: input, route: { '│é': else } } }\n"
    text += "output: { from: 'a.│é', to: stdout }\n"
    assert "  | │é -> output" in lines(model(text), ascii_only=True)


def test_long_words_are_cut_and_controls_shown() -> None:
    rule = " && ".join(["data.amount > 1"] * 20)
    text = PUSH + f'description: "\\e[31m{"x" * 300}"\n'
    text += f"nodes: {{ a: {{ from: input, filter: '{rule}' }} }}\n"
    text += "output: { from: a, to: stdout }\n"
    drawn = lines(model(text))
    assert drawn[0].startswith(r"tried: \x1b[31mxxx")
    cut = [width(line) for line in drawn if line.endswith("...")]
    assert len(cut) == 2
    assert all(WIDTH - 3 <= size <= WIDTH for size in cut)


def test_forty_steps_in_a_row_stay_in_one_lane() -> None:
    nodes = "".join(
        f"  n{i}: {{ from: {f'n{i - 1}' if i else 'input'}, tap: log }}\n" for i in range(40)
    )
    drawn = lines(model(PUSH + f"nodes:\n{nodes}output: {{ from: n39, to: stdout }}\n"))
    assert len(drawn) == 2 + 2 * 42 + 1
    assert max(map(width, drawn)) < 40


def fan_out(count: int) -> Pipeline:
    nodes = "".join(f"  n{i}: {{ from: input, tap: log }}\n" for i in range(count))
    sources = ", ".join(f"n{i}" for i in range(count))
    return model(PUSH + f"nodes:\n{nodes}output: {{ from: [{sources}], to: stdout }}\n")


def test_what_is_too_wide_for_text_is_refused() -> None:
    assert max(map(width, lines(fan_out(LANES_MAX)))) < 2 * LANES_MAX + WIDTH
    with pytest.raises(BadRequest, match="over 200 lines run side by side"):
        lines(fan_out(LANES_MAX + 1))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_everything_is_there_and_every_line_leads_somewhere(pipeline: Pipeline) -> None:
    drawn = lines(pipeline)
    shown = "\n".join(drawn)
    steps = Steps.of(pipeline)
    for step in steps.ordered:
        assert re.search(rf"[○●◆◎][ │]* {re.escape(step.id)} +{step.kind}\b", shown)
        for branch in step.branches:
            assert f" {branch} → " in shown
    assert shown.count("nobody takes it") == sum(not edge.target for edge in steps.edges())
    assert max(map(width, drawn)) <= WIDTH + 60
    cells = [cells_of(line) for line in drawn[2:]]
    for upper, lower in pairwise([*cells, ""]):
        for column in range(max(map(len, (*cells, "")))):
            down = upper[column : column + 1] in DOWN
            assert down == (lower[column : column + 1] in UP), f"{upper}\n{lower}\n\n{shown}"
    for row in cells:
        for left, right in pairwise(row.replace("╴", " ")):
            if left == "─" or right == "─":
                assert left in RIGHT, shown
                assert right in LEFT, shown


def cells_of(line: str) -> str:
    found = re.match(r"[ │─├┤┼╮╭╰╯╴○●◆◎✓]*", line)
    assert found
    return found[0]
