"""REST over the real listener; the pipeline is a fake process, the journal none."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pipo import errors
from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo_gateway.gateway import Gateway
from tests.unit.gateway.fake_pipeline import FakePipeline

ONE = "/api/pipelines/signups"


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with client.get(path) as got:
        return got.status, await got.json()


async def post(
    client: aiohttp.ClientSession, path: str, text: str = "{}", kind: str = "application/json"
) -> tuple[int, Any]:
    async with client.post(
        path, data=io.BytesIO(text.encode()), headers={"Content-Type": kind}
    ) as got:
        return got.status, await got.json()


async def test_health_tells_where_the_other_door_is(
    home: Home, gateway: Gateway, client: aiohttp.ClientSession
) -> None:
    status, told = await get(client, "/healthz")
    assert status == 200
    assert told["ok"] is True
    assert told["home"] == str(home.root)
    assert told["grpc_port"] == int(gateway.address.rpartition(":")[2])
    assert told["services"] == {"gateway": [], "runner": [], "checker": []}


async def test_engine(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    status, told = await get(client, "/api/engine")
    assert status == 200
    assert told["pipelines"] == 1
    assert told["ready"] is False
    assert told["started_at"] > 1_600_000_000_000


async def test_a_running_pipeline_in_the_list_and_alone(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    _, listed = await get(client, "/api/pipelines")
    (entry,) = listed["pipelines"]
    assert (entry["name"], entry["state"], entry["status"]) == ("signups", "running", "active")
    assert entry["stats"]["accepted"] == 0
    _, alone = await get(client, ONE)
    assert alone["runner"]["last_seq"] == 3
    assert alone["runner"]["inputs"][0]["via"] == "http"
    assert {**alone, "runner": None} == {**entry, "runner": None}


async def test_a_stopped_pipeline_is_read_from_its_files(
    home: Home, client: aiohttp.ClientSession
) -> None:
    desired.write(
        home.pipeline("old"),
        Desired("running", "/w/old.pipo", state="crashed", last_exit="exit 1", error="boom"),
    )
    status, told = await get(client, "/api/pipelines/old")
    assert status == 200
    assert (told["state"], told["file"]) == ("crashed", "/w/old.pipo")
    assert (told["last_exit"], told["error"], told["runner"]) == ("exit 1", "boom", None)
    assert told["stats"]["accepted"] == 0


async def test_push_keeps_every_digit(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    body = '{"data": {"n": 123456789012345678901234567890, "m": [1.50]}, "source": "me"}'
    status, told = await post(client, f"{ONE}/push", body)
    assert (status, told["packet_id"]) == (200, "01P")
    request = pipeline.asked[0]
    assert request.data == b'{"n": 123456789012345678901234567890, "m": [1.50]}'
    assert (request.source, request.pipeline) == ("me", "signups")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("{}", "data is missing"),
        ('{"data": 1, "surce": "x"}', "unknown field 'surce'"),
        ('{"data": 1, "source": 7}', "source is not a text"),
        ('{"data": 1, "source": "\\ud800 half a pair"}', "the body is not JSON"),
        ('{"data": 1', "the body is not JSON"),
        ("[1]", "the body is not a JSON object"),
        ('{"data": 1, "source": "' + "x" * 201 + '"}', "source has 201 characters"),
    ],
)
async def test_a_wrong_push_names_what_is_wrong(
    client: aiohttp.ClientSession, pipeline: FakePipeline, body: str, wanted: str
) -> None:
    status, told = await post(client, f"{ONE}/push", body)
    assert (status, told["code"]) == (400, "bad_request")
    assert wanted in told["error"]
    assert told["hint"]
    assert not pipeline.asked


async def test_data_null_is_data(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    assert (await post(client, f"{ONE}/push", '{"data": null}'))[0] == 200
    assert pipeline.asked[0].data == b"null"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadRequest("b", hint="h"), 400),
        (errors.NotFound("n"), 404),
        (errors.InvalidState("i"), 409),
        (errors.Conflict("c"), 409),
        (errors.Rejected("r", packet_id="01R"), 422),
        (errors.Unavailable("u"), 503),
        (errors.Internal("x"), 500),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
async def test_errors_of_the_pipeline_get_their_status(
    client: aiohttp.ClientSession, pipeline: FakePipeline, error: errors.PipoError, status: int
) -> None:
    pipeline.raises = error
    got, told = await post(client, f"{ONE}/push", '{"data": 1}')
    assert got == status
    assert (told["error"], told["hint"], told["code"]) == (error.message, error.hint, error.code)
    assert told.get("packet_id") == getattr(error, "packet_id", None)


async def test_data_over_the_limit_is_413(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    status, told = await post(client, f"{ONE}/push", '{"data": "' + "x" * (4 << 20) + '"}')
    assert status == 413
    assert "engine.packet_limit" in told["hint"]


async def test_control_of_a_stopped_pipeline_says_how_to_start_it(
    home: Home, client: aiohttp.ClientSession
) -> None:
    home.pipeline("old").ensure()
    status, told = await post(client, "/api/pipelines/old/push", '{"data": 1}')
    assert (status, told["code"]) == (409, "invalid_state")
    assert told["hint"] == "start it with: pipo start old"
    status, told = await post(client, "/api/pipelines/old/stop")
    assert (status, told["state"], told["already"]) == (200, "stopped", True)


async def test_an_unknown_pipeline_is_404_with_the_one_that_was_meant(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    for method, path in [("GET", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/packets")]:
        async with client.request(method, f"/api/pipelines/singups{path}", json={}) as got:
            told = await got.json()
        assert (got.status, told["code"]) == (404, "not_found")
        assert told["hint"] == "did you mean signups?"


async def test_starting_without_a_runner_is_503(home: Home, client: aiohttp.ClientSession) -> None:
    status, told = await post(client, "/api/pipelines", '{"file": "/w/x.pipo"}')
    assert status == 503
    assert told["error"] == "no runner host is running"
    assert (await post(client, "/api/pipelines", '{"file": "x.pipo"}'))[0] == 400
    assert (await post(client, "/api/pipelines"))[0] == 400


async def test_stop_without_a_host_asks_the_process_itself(
    home: Home, client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    desired.write(home.pipeline("signups"), Desired("running", "/w/signups.pipo"))
    status, told = await post(client, f"{ONE}/stop", '{"now": true}')
    assert (status, told["state"]) == (200, "draining")
    assert pipeline.asked[0].now is True
    found = desired.read(home.pipeline("signups"))
    assert found is not None
    assert found.desired == "stopped"


async def test_pause_and_resume_ask_the_process(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    status, told = await post(client, f"{ONE}/pause", '{"reason": "agent"}')
    assert (status, told) == (200, {"pipeline": "signups", "state": "paused", "already": False})
    assert pipeline.asked[0].reason == "agent"
    status, told = await post(client, f"{ONE}/resume")
    assert (status, told) == (200, {"pipeline": "signups", "state": "active", "already": True})
    assert (await post(client, f"{ONE}/pause", '{"why": 1}'))[0] == 400
    pipeline.raises = errors.InvalidState("signups is draining", hint="start it again")
    status, told = await post(client, f"{ONE}/pause")
    assert (status, told["code"], told["hint"]) == (409, "invalid_state", "start it again")


async def test_ack_asks_the_process(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    status, told = await post(client, f"{ONE}/ack", '{"packet_id": "01P:a", "by": "Ada"}')
    assert (status, told) == (
        200,
        {"packet_id": "01P:a", "state": "verifying", "acked": True, "already": False},
    )
    assert (pipeline.asked[0].packet_id, pipeline.asked[0].by) == ("01P:a", "Ada")
    for body in ("{}", '{"packet_id": ""}', '{"packet_id": 7}', '{"packet_id": "01P", "who": 1}'):
        status, told = await post(client, f"{ONE}/ack", body)
        assert (status, told["code"]) == (400, "bad_request"), body
    assert len(pipeline.asked) == 1
    pipeline.raises = errors.NotFound("no such packet", hint="copies are <packet_id>:<branch>")
    status, told = await post(client, f"{ONE}/ack", '{"packet_id": "01P"}')
    assert (status, told["code"]) == (404, "not_found")
    assert told["hint"] == "copies are <packet_id>:<branch>"


async def test_dead_letters_are_listed_replayed_and_purged(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    async with client.get(f"{ONE}/dlq?limit=5&after=01X") as got:
        listed = await got.json()
    assert [one["packet_id"] for one in listed["packets"]] == ["01P"]
    assert (listed["total"], listed["next"], listed["source"]) == (1, None, "runner")
    assert (pipeline.asked[0].limit, pipeline.asked[0].after) == (5, "01X")
    status, told = await post(client, f"{ONE}/dlq/replay", '{"ids": ["01P"], "by": "Ada"}')
    assert (status, told) == (
        200,
        {
            "replayed": 1,
            "packets": [{"packet_id": "01P", "units": [{"id": "01P", "node": "$output"}]}],
            "skipped": [],
        },
    )
    status, told = await post(client, f"{ONE}/dlq/purge", '{"all": true}')
    assert (status, told) == (200, {"purged": 1, "packet_ids": ["01P"], "skipped": []})
    assert (list(pipeline.asked[1].ids), pipeline.asked[1].by) == (["01P"], "Ada")
    assert (list(pipeline.asked[2].ids), pipeline.asked[2].all) == ([], True)


async def test_packets_are_rerun(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    asked = (
        '{"from": "shape", "last": 2, "since": "24h", "current": true, "dry": true, "by": "Ada"}'
    )
    status, told = await post(client, f"{ONE}/rerun", asked)
    assert (status, told) == (
        200,
        {
            "from": "shape",
            "dry": True,
            "rerun": 1,
            "packets": [
                {"packet_id": "01P", "version": 2, "units": [{"id": "01P", "node": "shape"}]}
            ],
            "skipped": [{"packet_id": "01Q", "reason": "it never reached 'shape'"}],
            "skipped_count": 1,
            "path": [
                {"step": "shape", "kind": "transform: map", "effect": None},
                {"step": "output", "kind": "output: sqlite", "effect": "write"},
            ],
            "current": None,
        },
    )
    await post(client, f"{ONE}/rerun", '{"from": "output", "ids": ["01P", "01Q"]}')
    await post(client, f"{ONE}/rerun", '{"from": "output", "all": true}')
    first, named, every = pipeline.asked
    assert (first.last, first.since, first.current, first.dry, first.by) == (
        2,
        "24h",
        True,
        True,
        "Ada",
    )
    assert (list(named.ids), named.dry, named.all) == (["01P", "01Q"], False, False)
    assert (list(every.ids), every.all) == ([], True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"all": true}', "from is missing"),
        ('{"from": "shape"}', "no packets are named"),
        ('{"from": "shape", "ids": []}', "no packets are named"),
        ('{"from": "shape", "ids": ["01P"], "all": true}', "ids and all are given"),
        ('{"from": "shape", "ids": ["01P"], "since": "1h"}', "ids and since are given"),
        ('{"from": "shape", "all": true, "last": 2}', "all and last are given"),
        ('{"from": "shape", "last": 0}', "last is 0"),
        ('{"from": "shape", "last": -1}', "last is -1"),
        ('{"from": "shape", "last": 99999999999999999999}', "last is 99999999999999999999"),
        ('{"from": "shape", "since": "soon"}', "since: 'soon' is not a duration"),
        ('{"from": "shape", "since": ""}', "no packets are named"),
        ('{"from": "shape", "ids": [""]}', "an id is empty"),
        ('{"from": "shape", "all": true, "yes": true}', "unknown field 'yes'"),
    ],
)
async def test_a_rerun_names_a_node_and_packets(
    client: aiohttp.ClientSession, pipeline: FakePipeline, body: str, error: str
) -> None:
    """Edge 276."""
    status, told = await post(client, f"{ONE}/rerun", body)
    assert (status, told["code"], pipeline.asked) == (400, "bad_request", [])
    assert told["error"].startswith(error)


async def test_escalated_packets_are_resolved(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    asked = '{"ids": ["01P"], "action": "retry", "by": "Ada", "by_kind": "agent", "reason": "up"}'
    status, told = await post(client, f"{ONE}/resolve", asked)
    assert (status, told) == (
        200,
        {
            "action": "retry",
            "resolved": [{"packet_id": "01P", "state": "processing", "node": "shape"}],
        },
    )
    await post(client, f"{ONE}/resolve", '{"packet_id": "01P:a", "action": "drop"}')
    first, second = pipeline.asked
    assert (list(first.ids), first.by, first.by_kind, first.reason) == (
        ["01P"],
        "Ada",
        "agent",
        "up",
    )
    assert (second.packet_id, second.action, second.by, second.by_kind) == ("01P:a", "drop", "", "")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"ids": ["01P"]}', "action is missing"),
        ('{"ids": ["01P"], "action": "skip"}', "action is 'skip'"),
        ('{"action": "retry"}', "neither ids nor packet_id is given"),
        ('{"ids": [], "action": "retry"}', "neither ids nor packet_id is given"),
        ('{"ids": ["01P"], "packet_id": "01P", "action": "retry"}', "both ids and packet_id are"),
        ('{"packet_id": "01P", "action": "retry", "by_kind": "cat"}', "by_kind is 'cat'"),
        ('{"ids": [""], "action": "retry"}', "an id is empty"),
        ('{"packet_id": "01P", "action": "retry", "all": true}', "unknown field 'all'"),
    ],
)
async def test_a_resolution_names_what_and_whom(
    client: aiohttp.ClientSession, pipeline: FakePipeline, body: str, error: str
) -> None:
    """Edge 291."""
    status, told = await post(client, f"{ONE}/resolve", body)
    assert (status, told["code"], pipeline.asked) == (400, "bad_request", [])
    assert told["error"].startswith(error)


@pytest.mark.parametrize("path", ["dlq/replay", "dlq/purge"])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("{}", "neither ids nor all is given"),
        ('{"ids": []}', "neither ids nor all is given"),
        ('{"all": false}', "neither ids nor all is given"),
        ('{"ids": ["01P"], "all": true}', "both ids and all are given"),
        ('{"ids": "01P"}', "ids is not a list of texts"),
        ('{"ids": ["01P", 7]}', "ids is not a list of texts"),
        ('{"ids": [""]}', "an id is empty"),
        ('{"all": "yes"}', "all is not true or false"),
        ('{"id": ["01P"]}', "unknown field 'id'"),
        (json.dumps({"ids": [f"01P{n}" for n in range(1001)]}), "1001 ids are given"),
    ],
)
async def test_either_ids_or_all(
    client: aiohttp.ClientSession, pipeline: FakePipeline, path: str, body: str, error: str
) -> None:
    """Edge 254."""
    status, told = await post(client, f"{ONE}/{path}", body)
    assert (status, told["code"], told["error"]) == (400, "bad_request", error)
    assert pipeline.asked == []


async def test_ids_count_once(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    ids = [f"01P{n}" for n in range(1000)]
    assert (await post(client, f"{ONE}/dlq/replay", json.dumps({"ids": ids * 2})))[0] == 200


async def test_versions_diff_rollback_and_apply(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    """doors.md; edge 345, 357, 422."""
    status, told = await get(client, f"{ONE}/versions")
    assert (status, told["current"], told["latest"], told["source"]) == (200, 1, 1, "runner")
    assert told["versions"] == [
        {
            "version": 1,
            "hash": "h1",
            "author": "ada",
            "author_kind": "",
            "reason": "",
            "proposal": None,
            "files": {"./a.py": "d1"},
            "created_at": 0,
            "pending": 0,
        }
    ]
    _, told = await get(client, f"{ONE}/versions/v1")
    assert (told["version"], told["text"], told["texts"]) == (1, "pipo: 1\n", {"./a.py": "x\n"})
    _, told = await get(client, f"{ONE}/diff?from=1&to=v2")
    assert (told["from"], told["to"], told["diff"], told["identical"]) == (1, 2, "-a\n", False)
    for version in ("1", '"1"', '"v1"'):
        status, told = await post(client, f"{ONE}/rollback", f'{{"version": {version}, "by": "a"}}')
        assert (status, told["version"], told["rolled_back_to"]) == (200, 3, 1)
    assert [(one.version, one.by) for one in pipeline.asked[-3:]] == [
        ("1", "a"),
        ("1", "a"),
        ("v1", "a"),
    ]
    body = {"source": "pipo: 1", "files": {"./a.py": "x"}, "reason": "why", "by": "ada"}
    status, told = await post(client, f"{ONE}/apply", json.dumps(body))
    assert (status, told) == (
        200,
        {"version": 2, "previous": 1, "changed": True, "pending_older": 7, "warnings": []},
    )
    sent = pipeline.asked[-1]
    assert (sent.source, dict(sent.files), sent.reason, sent.by) == (
        "pipo: 1",
        {"./a.py": "x"},
        "why",
        "ada",
    )


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("rollback", "{}", "version is missing"),
        ("rollback", '{"version": "newest"}', "'newest' names no version"),
        ("rollback", '{"version": true}', 'version is not a version, like 3 or "v3"'),
        ("rollback", '{"version": 1.5}', 'version is not a version, like 3 or "v3"'),
        ("apply", "{}", "source is missing"),
        ("apply", '{"source": ""}', "source is missing"),
        ("apply", '{"source": 1}', "source is not a text"),
        ("apply", '{"source": "x", "files": ["a"]}', "files is not an object of texts by path"),
        ("apply", '{"source": "x", "files": {"a": 1}}', "files is not an object of texts by path"),
        ("apply", '{"sauce": "x"}', "unknown field 'sauce'"),
        ("diff?from=1", None, "to is missing"),
        ("diff?from=x&to=1", None, "'x' names no version"),
        ("versions/one", None, "'one' names no version"),
    ],
)
async def test_what_names_no_version_and_is_no_text(
    client: aiohttp.ClientSession,
    pipeline: FakePipeline,
    path: str,
    body: str | None,
    error: str,
) -> None:
    """Edge 347, 422."""
    url = f"{ONE}/{path}"
    status, told = await (get(client, url) if body is None else post(client, url, body))
    assert (status, told["code"], told["error"]) == (400, "bad_request", error)
    assert pipeline.asked == []


async def test_texts_without_end_are_refused(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    files = {str(n): "" for n in range(257)}
    status, told = await post(client, f"{ONE}/apply", json.dumps({"source": "x", "files": files}))
    assert (status, told["error"]) == (413, "257 files with 1 characters in all are sent")
    assert pipeline.asked == []


async def test_drain_and_restart(
    home: Home, client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    status, told = await post(client, f"{ONE}/restart")
    assert (status, told["error"]) == (503, "no runner host is running")
    assert (await post(client, f"{ONE}/restart", '{"ttl": "1h"}'))[0] == 503
    status, told = await post(client, f"{ONE}/drain")
    assert (status, told) == (200, {"pipeline": "signups", "state": "draining", "already": False})


async def test_packets_trace_and_events(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    _, packets = await get(client, f"{ONE}/packets?state=delivered&limit=3&after=01Z")
    assert packets["packets"][0]["received_at"] == 2**53 + 1
    assert packets["source"] == "runner"
    asked = pipeline.asked[0]
    assert (asked.state, asked.limit, asked.after) == ("delivered", 3, "01Z")
    async with client.get(f"{ONE}/packets/01P") as got:
        assert b'"data":{"n":12345678901234567890}' in await got.read()
    _, events = await get(client, f"{ONE}/events?after=1&limit=1")
    assert [e["seq"] for e in events["events"]] == [2]
    assert (events["last_id"], events["more"]) == ("signups:2", True)
    assert (await get(client, "/api/events?pipeline=signups&after=signups:2"))[1]["last_seq"] == 3


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{ONE}/packets?state=lost", "no packet is ever 'lost'"),
        (f"{ONE}/packets?limit=0", "limit is 0"),
        (f"{ONE}/packets?limit=1001", "limit is 1001"),
        (f"{ONE}/packets?limit=x", "limit is 'x'"),
        (f"{ONE}/packets?colour=red", "unknown field 'colour'"),
        (f"{ONE}/events?after=other:3", "after is 'other:3'"),
        (f"{ONE}/logs?tail=0", "tail is 0"),
    ],
)
async def test_a_wrong_query_names_what_is_wrong(
    client: aiohttp.ClientSession, pipeline: FakePipeline, path: str, wanted: str
) -> None:
    status, told = await get(client, path)
    assert (status, told["code"]) == (400, "bad_request")
    assert wanted in told["error"]
    assert told["hint"]


async def test_events_of_all_pipelines_in_one_order(
    home: Home, client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    second = await FakePipeline("people").start(home)
    try:
        _, first = await get(client, "/api/events?limit=3")
        ids = [f"{e['pipeline']}:{e['seq']}" for e in first["events"]]
        assert ids == ["people:1", "signups:1", "people:2"]
        assert first["more"] is True
        _, rest = await get(client, f"/api/events?after={first['last_id']}")
        assert [f"{e['pipeline']}:{e['seq']}" for e in rest["events"]] == [
            "signups:2",
            "people:3",
            "signups:3",
        ]
        assert rest["more"] is False
        status, told = await get(client, "/api/events?after=people:77")
        assert (status, told["code"]) == (410, "not_found")
    finally:
        await second.die()


async def test_logs_tail_and_follow(home: Home, client: aiohttp.ClientSession) -> None:
    home.pipeline("old").ensure()
    home.pipeline("old").log.write_bytes(b"one\ntwo\nthree\nhal")
    _, tail = await get(client, "/api/pipelines/old/logs?tail=2")
    assert (tail["lines"], tail["next"], tail["reset"]) == (["two", "three"], 14, False)
    with home.pipeline("old").log.open("ab") as log:
        log.write(b"f\n")
    _, more = await get(client, "/api/pipelines/old/logs?after=14")
    assert (more["lines"], more["next"]) == (["half"], 19)
    home.pipeline("old").log.write_bytes(b"new\n")
    _, anew = await get(client, "/api/pipelines/old/logs?after=19")
    assert (anew["lines"], anew["reset"]) == (["new"], True)


async def test_check_tells_the_places_and_what_was_not_imported(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text("import no_such_module\n")
    text = "pipo: 1\nname: n\nfn: x.py\ninput: { via: push }\noutput: { from: input, to: stdot }\n"
    asked = {"source": text, "file": str(tmp_path / "n.pipo")}
    status, told = await post(client, "/api/check", json.dumps(asked))
    [found] = told["diagnostics"]
    assert (status, told["ok"], told["not_imported"]) == (200, False, ["x.py"])
    assert {key: found[key] for key in ("code", "severity", "line", "col", "path")} == {
        "code": "P002",
        "severity": "error",
        "line": 5,
        "col": 28,
        "path": "output.to",
    }
    assert found["hint"].startswith("did you mean `stdout`?")


async def test_routes(client: aiohttp.ClientSession, pipeline: FakePipeline) -> None:
    status, told = await get(client, "/api/nothing")
    assert (status, told["code"]) == (404, "not_found")
    assert "GET /api/pipelines/{name}" in told["routes"]
    assert (await get(client, f"{ONE}/packets/01P/more"))[0] == 404
    async with client.get(f"{ONE}/push") as got:
        assert got.status == 405
        assert got.headers["Allow"] == "POST"
    assert (await post(client, f"{ONE}/stop", "now=1", "application/x-www-form-urlencoded"))[
        0
    ] == 415
    assert (await post(client, f"{ONE}/stop", "{}", "text/plain"))[0] == 415


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        (f"{ONE}/proposals", "proposals"),
    ],
)
async def test_an_operation_that_is_not_built_is_named(
    client: aiohttp.ClientSession, pipeline: FakePipeline, path: str, operation: str
) -> None:
    status, told = await post(client, path)
    assert (status, told["code"]) == (501, "unavailable")
    assert told["error"] == f"{operation} is not built yet"


async def test_a_foreign_host_is_403_on_the_api_and_served_on_in(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    foreign = {"Host": "evil.example"}
    for path in ("/api/pipelines", "/metrics", "/api/nothing"):
        async with client.get(path, headers=foreign) as got:
            assert got.status == 403
    async with client.get("/healthz", headers=foreign) as got:
        assert got.status == 200
    async with client.post("/in/signups/new", headers=foreign) as got:
        assert got.status == 202
