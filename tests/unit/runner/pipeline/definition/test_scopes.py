"""What each template sees, and what it must not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipo.payload import encode
from pipo_runner.pipeline.definition.rendering import Settings
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.life.recovery import unit_of
from tests.unit.runner.pipeline.rig import AT, Rig, pending

SCOPES = Scopes("people", env={"DAY": "mon"}, secrets={"token": "s3cr3t"})
UNIT = unit_of(pending(1, attempt=2, hops=3, version=4, source="cli"))


def test_meta_at_a_step() -> None:
    assert SCOPES.meta(UNIT, "shape") == {
        "packet_id": "u1",
        "branch": "",
        "key": "u1",
        "pipeline": "people",
        "version": 4,
        "node": "shape",
        "input": "input",
        "trigger": "push",
        "source": "cli",
        "received_at": AT,
        "attempt": 3,
        "hops": 3,
        "iteration": 0,
        "upstream": None,
    }


def test_an_explicit_key_is_known_only_where_it_is_given() -> None:
    unit = unit_of(pending(1, key="a@b.c"))
    assert SCOPES.meta(unit, "shape")["key"] == "u1"
    assert SCOPES.meta(unit, "output", key=unit.key)["key"] == "a@b.c"


def test_secrets_are_seen_by_settings_only() -> None:
    plan = Rig().plans.current()
    assert "secrets" in SCOPES.step(UNIT, "shape", with_meta=False)
    assert "secrets" in SCOPES.inputs()
    assert "secrets" in SCOPES.check(UNIT, plan, b"{}")
    assert "secrets" not in SCOPES.rules(UNIT.data, {})
    assert "secrets" not in SCOPES.verdict(UNIT, plan, b"{}")


def test_meta_is_left_out_where_nothing_names_it() -> None:
    assert "meta" not in SCOPES.step(UNIT, "shape", with_meta=False)
    assert SCOPES.step(UNIT, "shape", with_meta=True)["meta"]["node"] == "shape"


def test_a_check_is_given_only_what_it_names() -> None:
    plan = Rig().plans.current()
    assert SCOPES.check(UNIT, plan, b"no JSON").keys() == {"data", "env", "secrets", "output"}


async def test_a_check_sees_the_output_as_written_and_the_result() -> None:
    named = Settings({"where": {"a": "${meta.key} ${result.rowid}"}}, {}, Path("/"))
    plan = replace(Rig().plans.current(), check_settings=named)
    unit = unit_of(pending(1, key="a@b.c"))
    scope = SCOPES.check(unit, plan, b'{"rowid":12345678901234567890}')
    assert scope["result"] == {"rowid": 12345678901234567890}
    assert scope["output"]["with"]["path"] == "./people.db"
    assert (scope["meta"]["key"], scope["meta"]["node"]) == ("a@b.c", "delivered")
    assert scope["data"] == {"n": 1}


def test_where_a_packet_was_handed_over_from_survives_a_restart() -> None:
    upstream = {"pipeline": "intake", "packet_id": "01S", "key": "01S:a", "depth": 2}
    unit = unit_of(pending(1, trigger="pipeline", source="intake", upstream=encode(upstream)))
    assert SCOPES.meta(unit, "shape")["upstream"] == upstream
