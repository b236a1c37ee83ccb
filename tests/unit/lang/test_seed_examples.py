"""The example pipelines and snippets of the documents, as printed, before the checker."""

from __future__ import annotations

from textwrap import indent

import pytest

from pipo.lang.model import Retention
from tests.unit.lang.reading import HEAD, PUSH, STDOUT, codes, codes_of_run, model

DAY = 86_400_000

HEARTBEAT = """\
pipo: 1
name: heartbeat
input:
  via: schedule
  with: { every: 5s, payload: { status: alive } }
output:
  from: input
  to: file
  with: { path: ./out/heartbeat.jsonl, format: jsonl }
delivered:
  check: line_contains
  with: { value: "${meta.packet_id}" }
  within: 5s
  on_fail:
    then: dead_letter
    message: "No line for ${meta.packet_id} after ${error.elapsed}"
"""
SIGNUPS = """\
pipo: 1
name: signups-to-sqlite
input:
  via: http
  with: { path: /signups }
output:
  from: input
  to: sqlite
  with:
    path: ./data/signups.db
    table: signups
    create: true
"""
TICKS = """\
pipo: 1
name: print-ticks
input:
  via: schedule
  with: { every: 10s, payload: { hello: world } }
output:
  from: input
  to: stdout
  with: { format: text }
"""
BACKFILL = """\
pipo: 1
name: backfill
lifetime:
  ttl: 2h                       # end two hours after the start
  max_packets: 50000            # or after 50,000 accepted packets
  until: stats.pending == 0 && stats.delivered >= 50000
  on_end: drain
  drain_timeout: 5m
concurrency: 8
buffer: { max: 20000 }
retention:
  data: 1d
  trail: 7d
input:
  via: push
output:
  from: input
  to: file
  with: { path: ./out/backfill.jsonl }
"""
INTAKE = """\
pipo: 1
name: people-intake
input:
  via: http
  with: { path: /people }
nodes:
  clean:
    from: input
    transform: map
    with:
      data:
        name: "${trim(data.name)}"
        email: "${lower(trim(data.email))}"
output:
  from: clean
  to: pipeline
  with: { pipeline: people-store }
  on_error: { retry: 10, backoff: exponential, delay: 1s, max_delay: 30s }
delivered:
  check: downstream        # wait until people-store has written and verified it
  within: 2m
"""
STORE = """\
pipo: 1
name: people-store
inputs:
  intake:
    via: pipeline
    with: { from: [people-intake] }
    validate:
      - exists(data.email)
  manual:
    via: push
output:
  from: [intake, manual]
  to: sqlite
  with:
    path: ./data/people.db
    table: people
    create: true
    mode: upsert
    key: email
    columns:
      email: "${data.email}"
      name: "${data.name}"
delivered:
  check: record_exists
  with:
    where: { email: "${data.email}" }
"""
WHOLE = (HEARTBEAT, SIGNUPS, TICKS, BACKFILL, INTAKE, STORE)

# Snippets of an output and its delivery; the smallest pipeline is put around them.
SNIPPETS = {
    "record_exists": """\
output:
  from: step
  to: sqlite
  with:
    path: ./data/people.db
    table: people
    create: true
    key: id
    columns:
      id: "${meta.packet_id}"
      name: "${data.name}"
delivered:
  check: record_exists
  with:
    where: { id: "${meta.packet_id}" }
  within: 10s
""",
    "row_count": """\
output: { from: step, to: sqlite, with: { path: ./o.db, table: order_lines } }
delivered:
  check: row_count
  with:
    query: "SELECT 1 FROM order_lines WHERE order_id = ?"
    params: ["${data.order_id}"]
    min: 1
""",
    "query": """\
output: { from: step, to: sqlite, with: { path: ./o.db, table: invoices } }
delivered:
  check: query
  with:
    sql: "SELECT total = ? FROM invoices WHERE id = ?"
    params: ["${data.total}", "${data.invoice_id}"]
""",
    "file_nonempty": """\
output:
  from: step
  to: file
  with: { path: "./out/${meta.packet_id}.json", format: json, mode: write }
delivered:
  check: file_nonempty
""",
    "follow_up": """\
secrets:
  crm_token: env:CRM_TOKEN
output:
  from: step
  to: http
  with:
    url: https://crm.example.com/api/contacts
    headers: { Authorization: "Bearer ${secrets.crm_token}" }
delivered:
  check: follow_up
  with:
    url: "https://crm.example.com/api/contacts?email=${data.email}"
    headers: { Authorization: "Bearer ${secrets.crm_token}" }
    match: { email: "${data.email}" }
  within: 30s
""",
    "external": """\
output: { from: step, to: stdout }
delivered:
  check: external
  within: 1h
  on_fail:
    then: dead_letter
    message: "Nobody confirmed ${meta.packet_id} within an hour"
""",
    "stall": """\
output: { from: step, to: stdout }
delivered:
  stall:
    after: 5m           # required: no progress for this long while packets are pending
    then: pause         # notify (default) | pause | agent
    message: >
      Pipeline jammed: ${stall.pending} packets pending and none delivered for ${stall.duration}.
      Oldest packet ${stall.oldest.packet_id} has been at '${stall.oldest.node}' for ${stall.oldest.age}
      (attempt ${stall.oldest.attempt}, last error: ${stall.oldest.last_error}).
""",
    "upsert": """\
output:
  from: step
  to: sqlite
  with:
    path: ./data/people.db
    table: people
    create: true
    mode: upsert
    key: email
    columns:
      email: "${lower(data.email)}"
      name: "${data.name}"
      age: "${data.age}"
      tags: "${data.tags}"
      seen_at: "${iso(meta.received_at)}"
""",
    "stamp": """\
output:
  from: step
  to: file
  with:
    path: "./out/${iso(meta.received_at)}.json"
    format: json
    mode: write
""",
    "http": """\
secrets:
  crm_token: env:CRM_TOKEN
output:
  from: step
  to: http
  with:
    method: POST
    url: https://crm.example.com/api/contacts
    headers:
      Authorization: "Bearer ${secrets.crm_token}"
    body:
      email: "${data.email}"
      name: "${data.name}"
      source: pipo
    success: [200, 201, 409]
  on_error:
    retry: 5
    backoff: exponential
    delay: 1s
""",
    "validate": """\
output:
  from: step
  to: sqlite
  with: { path: ./data/people.db, table: people, create: true }
  validate:
    - type(data.age) == "number"
    - len(data.name) <= 200
  on_invalid:
    then: dead_letter
    message: "Packet ${meta.packet_id} failed output rule '${error.rule}'; not written"
""",
    "write errors": """\
output:
  from: step
  to: http
  with: { url: https://api.example.com/items }
  on_error:
    retry: 5
    backoff: exponential
    delay: 500ms
    max_delay: 1m
    then: dead_letter
    message: "Could not write ${meta.packet_id} after ${error.attempts} attempts: ${error.message}"
""",
    "batch": """\
output:
  from: step
  to: sqlite
  batch:
    size: 100        # required: flush when this many have collected
    within: 2s       # flush this long after the first one arrived (default 1s)
  with: { path: ./data/events.db, table: events, create: true }
""",
}


@pytest.mark.parametrize("text", WHOLE)
def test_whole_pipelines(text: str) -> None:
    assert codes(text) == []


@pytest.mark.seed("C001", "C002")
def test_the_pair_passes_alone_and_together() -> None:
    assert codes(INTAKE) == codes(STORE) == []
    assert codes_of_run({"intake": INTAKE, "store": STORE}) == {"intake": [], "store": []}


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets(snippet: str) -> None:
    step = "nodes: { step: { from: input, tap: log } }\n"
    assert codes(PUSH + step + SNIPPETS[snippet]) == []


@pytest.mark.parametrize(
    "until",
    [
        *("stats.delivered >= 1000", "stats.uptime > 600 && stats.pending == 0"),
        *("stats.dead_lettered > 50", "stats.in_per_min > 1 || exists(stats.last_delivery_at)"),
    ],
)
def test_ends_of_a_lifetime(until: str) -> None:
    assert codes(PUSH + STDOUT + f"lifetime:\n  until: {until}   # why\n") == []


@pytest.mark.seed("L045")
def test_retention_as_printed_is_the_default() -> None:
    block = "retention:\n  data: 7d\n  trail: 30d\n  rejected: 3d\n  dlq: forever\n"
    assert model(PUSH + STDOUT + block).retention == model(PUSH + STDOUT).retention == Retention()
    assert Retention().trail_ms == 30 * DAY


@pytest.mark.seed("D007")
def test_delivered_takes_all_five_keys_together() -> None:
    block = (
        "check: external\nwith: {}\nwithin: 10s\non_fail: { then: pause }\nstall: { after: 5m }\n"
    )
    assert codes(PUSH + STDOUT + "delivered:\n" + indent(block, "  ")) == []


OUTPUTS = {
    "sqlite": ("path: ./x.db, table: t", "table: 5", "tabel: t"),
    "file": ("path: ./x", "path: 5", "paht: x"),
    "http": ("url: http://x", "method: FETCH", "uri: x"),
    "stdout": ("format: json", "format: csv", "path: x"),
    "telegram": ("chat_id: 5", "chat_id: true", "chat: 5"),
    "pipeline": ("pipeline: other", "pipeline: A_B", "to: other"),
}


MORE = "validate: [data.x], on_invalid: { then: pause }, on_error: { retry: 1 }"


@pytest.mark.seed("O006", "O007", "O008")
@pytest.mark.parametrize("to", OUTPUTS)
def test_the_envelope_is_the_same_for_every_output(to: str) -> None:
    good, wrong, unknown = OUTPUTS[to]

    def written(
        settings: str, start: str = f"from: input, to: {to}", more: str = MORE
    ) -> list[str]:
        return codes(PUSH + f"output: {{ {start}, with: {{ {settings} }}, {more} }}\n")

    assert written(good) == []
    assert written(good, more="name: x") == ["P002"]
    assert written(good, "from: input") == ["P002"]
    assert written(good, f"to: {to}") == ["P002"]
    assert written(good, f"from: input, to: {to}s") == ["P002"]
    assert set(written(wrong)) == {"P002"}
    assert set(written(f"{good}, {unknown}")) == {"P002"}


@pytest.mark.seed("C012")
def test_what_is_enforced_between_the_two_ends() -> None:
    sender = PUSH + "output: { from: input, to: pipeline, with: { pipeline: %s } }\n"
    receiver = HEAD.replace("tried", "store") + "input: { via: pipeline, with: { from: [%s] } }\n"
    receiver += STDOUT
    assert codes(sender % "tried") == ["P063"]
    assert codes(receiver % "store") == ["P063"]
    two = "inputs: { a: { via: pipeline, with: { from: [x] } }, b: { via: pipeline, with: { from: [x] } } }\n"
    assert codes(HEAD + two + "output: { from: [a, b], to: stdout }\n") == ["P063"]
    run = {"s": sender % "store", "r": receiver % "other"}
    assert codes_of_run(run) == {"s": ["P064"], "r": []}
    assert codes_of_run({**run, "r": receiver % "tried"}) == {"s": [], "r": []}
    assert codes_of_run({"s": sender % "elsewhere", "r": receiver % "tried"}) == {
        "s": [],
        "r": ["P064"],
    }
