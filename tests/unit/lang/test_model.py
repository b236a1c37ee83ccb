from __future__ import annotations

import dataclasses

import pytest

from pipo.lang.model import (
    AgentBudget,
    AgentPolicy,
    Batch,
    Delivered,
    ErrorPolicy,
    Input,
    Lifetime,
    Loop,
    OnInvalid,
    Retention,
    Stall,
)

from .reading import PUSH, STDOUT, model

DAY = 86_400_000


@pytest.mark.seed("D008", "R014")
def test_defaults() -> None:
    made = model(PUSH + STDOUT)
    assert made.name == "tried"
    assert made.inputs == (Input("input", "push"),)
    assert made.inputs[0].on_invalid == OnInvalid(422, None, None)
    assert made.output.sources == ("input",)
    assert made.output.raw == {"from": "input", "to": "stdout"}
    assert made.output.on_error == ErrorPolicy(0, "fixed", 1000.0, 60_000.0, "dead_letter", None)
    assert made.output.on_invalid.then == "dead_letter"
    assert made.delivered == Delivered("ack", {}, 10_000.0, ErrorPolicy(), None)
    assert (made.concurrency, made.buffer_max) == (4, 10_000)
    assert (made.nodes, made.secrets, made.fn, made.lifetime, made.errors) == (
        (),
        {},
        None,
        None,
        None,
    )
    assert (made.agent, made.agent_budget, made.description) == (None, None, None)
    assert made.retention == Retention(7 * DAY, 30 * DAY, 3 * DAY, None)


@pytest.mark.seed("D002", "D008")
def test_a_delivered_block_that_names_no_check_has_the_defaults() -> None:
    made = model(PUSH + STDOUT + "delivered: { stall: { after: 5m } }\n").delivered
    assert (made.check, made.within_ms, made.on_fail) == ("ack", 10_000.0, ErrorPolicy())


@pytest.mark.seed("R014")
def test_dead_letters_stay_forever_beside_other_ages() -> None:
    made = model(PUSH + STDOUT + "retention: { data: 1s, trail: 1s, rejected: 1s }\n")
    assert made.retention == Retention(1000.0, 1000.0, 1000.0, None)


@pytest.mark.seed("O067")
def test_everything_set() -> None:
    made = model(
        """
        pipo: 1
        name: all
        description: Everything
        secrets: { s: env:S }
        lifetime: { ttl: 2h, max_packets: 5, until: stats.pending == 0, on_end: stop, drain_timeout: 5m }
        concurrency: 1
        buffer: { max: 20 }
        errors: { retry: 2, delay: 1.5s, message: "m ${error.code}" }
        inputs:
          a: { via: http, with: { path: /a }, validate: [data.x], on_invalid: { respond: 400, message: n } }
          b: { via: pipeline, with: { from: [other] }, format: text }
        nodes:
          r: { from: [a, b, a], label: Ways, route: { x: data.x, y: else } }
          n:
            from: r.x
            tap: log
            on_error: { then: continue, backoff: exponential, max_delay: 10s }
            loop: { back_to: n, until: data.done, max: 3, then: drop }
          f: { from: [n, r.y], filter: data.ok }
        output:
          from: f
          to: sqlite
          with: { path: ./x.db, table: t }
          batch: { size: 10 }
          validate: [data.ok]
          on_invalid: { then: halt }
          on_error: { retry: 5 }
        delivered:
          check: record_exists
          with: { where: { packet_id: "${meta.key}" } }
          within: 1m
          on_fail: { then: pause }
          stall: { after: 5m, then: agent, message: s }
        agent: { control: true, actions: [pause], edit: [errors], redact: [data.x], on_stall: handle, verify: " last  25 " }
        agent_budget: { per_day: 2.5, reset_at: "06:30", per_packet: 9000, warn_at: 75% }
        retention: { data: 1d, dlq: 30d }
        """
    )
    assert made.lifetime == Lifetime(7_200_000.0, 5, "stats.pending == 0", "stop", 300_000.0)
    assert made.errors == ErrorPolicy(
        2, "fixed", 1500.0, 60_000.0, "dead_letter", "m ${error.code}"
    )
    assert [i.name for i in made.inputs] == ["a", "b"]
    assert made.inputs[0].on_invalid == OnInvalid(400, None, "n")
    route = made.node("r")
    assert (route.kind, route.sources, route.label) == ("route", ("a", "b"), "Ways")
    assert route.routes == (("x", "data.x"), ("y", "else"))
    tap = made.node("n")
    assert (tap.kind, tap.uses, tap.sources) == ("tap", "log", ("r.x",))
    assert tap.on_error == ErrorPolicy(
        2, "exponential", 1500.0, 10_000.0, "continue", "m ${error.code}"
    )
    assert tap.loop == Loop("n", "data.done", 3, "drop")
    assert (made.node("f").kind, made.node("f").uses) == ("filter", "data.ok")
    assert made.output.batch == Batch(10, 1000.0)
    assert (made.output.on_error.retry, made.output.on_error.delay_ms) == (5, 1500.0)
    assert made.output.on_invalid == OnInvalid(422, "halt", None)
    # What a failed check leads to inherits nothing.
    assert made.delivered.on_fail == ErrorPolicy(then="pause")
    assert made.delivered.stall == Stall(300_000.0, "agent", "s")
    assert made.agent == AgentPolicy(True, ("pause",), ("errors",), ("data.x",), "handle", 25)
    assert made.agent_budget == AgentBudget(2.5, "06:30", 9000, 75)
    assert made.retention == Retention(DAY, 30 * DAY, 3 * DAY, 30 * DAY)


def test_a_model_is_frozen() -> None:
    made = model(PUSH + STDOUT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"  # type: ignore[misc]
    with pytest.raises(KeyError):
        made.node("nope")


def test_settings_stay_as_written() -> None:
    made = model(PUSH + 'output: { from: input, to: file, with: { path: "./${data.x}" } }')
    assert made.output.settings == {"path": "./${data.x}"}
