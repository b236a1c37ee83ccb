from __future__ import annotations

from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors.contract import CheckContext
from pipo_checker.targets import InstalledConnectors, Targets, Unjudgeable


def test_an_offer_becomes_a_target(connectors: Any, checks: Any, offer: Any) -> None:
    made, target = Targets(connectors).target(offer("a", path="people.db"))
    assert made is checks
    assert (target.check, target.settings, target.result, target.output) == (
        "there",
        {"id": "a"},
        {"rowid": 1},
        {"path": "people.db"},
    )


def test_each_offer_has_its_own_place(connectors: Any, offer: Any) -> None:
    targets = Targets(connectors)
    paths = [targets.target(offer("a", path=p))[1].output["path"] for p in ("x", "y", "x")]
    assert paths == ["x", "y", "x"]


def test_a_check_that_is_not_offered_is_named(connectors: Any, offer: Any) -> None:
    with pytest.raises(Unjudgeable) as refused:
        Targets(connectors).target(offer("a", check="file_exists"))
    assert str(refused.value) == (
        "output 'fake' does not offer the check 'file_exists'; a checker runs: status, there"
    )


def test_an_output_that_is_not_built_is_named(connectors: Any, offer: Any) -> None:
    targets = Targets(connectors)
    for _ in range(2):
        with pytest.raises(Unjudgeable, match="the checks of output 'http' are not built yet"):
            targets.target(offer("a", output="http"))
    assert targets.built() == []


def test_large_integers_keep_their_digits(connectors: Any, offer: Any) -> None:
    digits = 123456789012345678901234567890
    settings = b'{"id": "a", "n": %d}' % digits
    _, target = Targets(connectors).target(offer("a", **{"with": settings}))
    assert target.settings["n"] == digits


def test_text_that_is_no_json_is_ours(connectors: Any, offer: Any) -> None:
    with pytest.raises(Unjudgeable, match="this is a bug in Pipo"):
        Targets(connectors).target(offer("a", **{"with": b"{"}))


def test_the_installed_connectors_say_what_they_offer() -> None:
    found = InstalledConnectors(CheckContext(SystemClock()))
    assert "record_exists" in found.offered("sqlite")
    assert "ack" not in found.offered("sqlite")
    assert found.offered("nothing") == frozenset()
