"""R01, what is seen of it from outside: the machine's time zone shows nowhere.

The ticks themselves, with the clock passed in: tests/contract/connectors/test_schedule_year.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from pipo.connectors import registry
from pipo.lang.check import Source, check, shown
from tests.packets import inspect, running
from tests.stack import Stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TICK = "input: { via: schedule, with: { every: 1s } }\noutput: { from: input, to: stdout }\n"
DST = (
    "input: { via: schedule, with: { cron: '30 2 * * *', timezone: America/New_York } }\n"
    "output: { from: input, to: stdout }\n"
)
# A time with its date and whatever zone stands behind it, or a time alone.
DATED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*")
STORY = re.compile(r"^ +(\d\d):\d\d:\d\d\.\d{3} ", re.M)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("zone"),
        {"tick": TICK, "dst": DST},
        env={"TZ": "America/New_York"},
    ) as made:
        yield made


def first_delivered(stack: Stack) -> str | None:
    listed = stack.get("/api/pipelines/tick/packets?state=delivered")["packets"]
    return listed[0]["packet_id"] if listed else None


def test_no_door_prints_a_bare_local_time(stack: Stack) -> None:
    packet_id = wait_for(lambda: first_delivered(stack), deadline_s=60, what="a tick is delivered")
    said = [
        stack.pipo("status", "tick").stdout,
        stack.pipo("inspect", "tick", packet_id).stdout,
        json.dumps(inspect(stack, "tick", packet_id)),
        (stack.home / "logs/tick.log").read_text(),
    ]
    found = [DATED.findall(text) for text in said]
    # The story, as JSON too, and the log are dated; a status may be too short for it.
    assert all(found[1:]), said
    for time in (time for times in found for time in times):
        assert re.search(r"\d\d:\d\d(:\d\d\.\d{3})?Z", time), time
    # In a story only the first time has its date; in New York it is four or five hours less.
    (received,) = (int(hour) for hour in re.findall(r"received \S+T(\d\d):", said[1]))
    hours = STORY.findall(said[1])
    assert hours
    assert all((int(hour) - received) % 24 <= 1 for hour in hours), said[1]
    assert re.search(r'"source": ?"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"', said[2])


def test_a_misspelt_zone_is_found_by_the_check() -> None:
    text = f"pipo: 1\nname: dst\n{DST.replace('New_York', 'NewYork')}"
    (report,) = check([Source(text, "dst.pipo")], registry.manifests())
    assert [shown("dst.pipo", one) for one in report.findings if one.code == "P038"] == [
        "dst.pipo:3:63  error  P038  there is no time zone 'America/NewYork'\n"
        "  did you mean `America/New_York`?"
    ]
