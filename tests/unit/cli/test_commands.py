"""The command lines: what they ask, what they print, how they exit."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipo.access.requests import PACKET_STATES
from pipo.errors import InvalidState, NotFound, Rejected, Unavailable
from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_cli import answers, observe, on_demand
from pipo_cli.commands import BUILT, LATER
from pipo_cli.main import main
from pipo_cli.names import os_user
from pipo_cli.progress import progress
from pipo_cli.settings import Settings
from tests.unit.cli.fakes import Operations, connected

ID = "01M4KTMCZ7J7Z6Y9DTCWHJ0SSP"
ACCEPTED = pipo_pb2.PushReply(packet_id=ID, pipeline="sender", state="accepted")

# The commands of the reference, by area.
REFERENCE = """
check fmt schema eval graph test new generate templates trust
run start stop pause resume restart status logs packets inspect events runners
dlq rerun resolve push ack attach history diff rollback apply engine ui backup restore
"""


class Shell:
    """Runs command lines against fake operations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(
        self, *words: str, engine: str = "up", **given: Any
    ) -> tuple[int, str, str, Operations]:
        operations = Operations(**given)
        for module in (answers, observe):
            self._monkeypatch.setattr(module, "connect", connected(operations, engine))
        self._monkeypatch.setattr(on_demand, "is_up", lambda settings: words[0] == "restart")
        code = main(words)
        out, err = self._capsys.readouterr()
        return code, out, err, operations


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    monkeypatch.setenv("PIPO_HOME", str(tmp_path / "home"))
    return Shell(monkeypatch, capsys)


def test_every_command_of_the_reference_exists() -> None:
    assert sorted([*BUILT, *LATER]) == sorted(REFERENCE.split())


@pytest.mark.parametrize("name", sorted(LATER))
def test_a_later_command_refuses_by_name(shell: Shell, name: str) -> None:
    code, out, err, _ = shell.run(name, "some", "words", "--all")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: pipo {name} is not built yet\n  hint: ")
    code, out, err, _ = shell.run(name, "--json")
    assert (code, err, json.loads(out)["code"]) == (1, "", "unavailable")


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        (("--listen", "0"), "0 is no port to listen on: use 1-65535", 2),
        (("--listen", "65536"), "65536 is no port to listen on: use 1-65535", 2),
        (("--listen", "http"), "'http' is not a port: use 1-65535", 2),
        (("--ttl", "soon"), "ttl: 'soon' is not a duration such as 250ms, 10s, 5m, 1.5h, 7d", 1),
        (("--ttl", "0s"), "ttl is '0s': a lifetime has a length", 1),
    ],
)
@pytest.mark.parametrize("command", ["start", "restart"])
def test_an_option_that_is_none_is_refused_before_anything_starts(
    shell: Shell, command: str, words: tuple[str, ...], error: str, code: int
) -> None:
    """Edge 322, 403: no file is looked for, and no stack comes up."""
    found, out, err, operations = shell.run(command, "./nowhere.pipo", *words)
    assert (found, out, operations.asked) == (code, "", [])
    assert error in err.splitlines()[0]
    found, out, _, _ = shell.run(command, "./nowhere.pipo", *words, "--json")
    assert (found, error in json.loads(out)["error"]) == (code, True)


def test_a_start_without_the_engine_is_refused(shell: Shell) -> None:
    code, _, err, _ = shell.run("start", "x", "--no-engine", "--listen", "8790")
    assert code == 1
    assert err.startswith("error: pipo start needs the engine, and --no-engine does without one\n")


def test_push_prints_id_pipeline_and_state(shell: Shell) -> None:
    code, out, _, operations = shell.run("push", "sender", "--data", '{"a": 1}', push=ACCEPTED)
    assert (code, out) == (0, f"{ID}  sender  (accepted)\n")
    assert operations.asked == [
        ("push", pipo_pb2.PushRequest(pipeline="sender", data=b'{"a": 1}', source="cli"))
    ]


def test_push_from_a_file_with_source_and_input(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "packet.json"
    file.write_text('{"n": 12345678901234567890}')
    words = ("--file", str(file), "--source", "me", "--input", "webhook")
    _, _, _, operations = shell.run("push", "sender", *words, push=ACCEPTED)
    request = operations.asked[0][1]
    assert (request.data, request.source, request.input) == (
        b'{"n": 12345678901234567890}',
        "me",
        "webhook",
    )


@pytest.mark.parametrize("words", [(), ("--data", "1", "--file", "x")])
def test_push_wants_data_or_file(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, err, _ = shell.run("push", "sender", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: give either --data or --file\n  hint: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "{"), "--data is not JSON"),
        (("--data", '{"a":1,"a":2}'), "the key 'a' stands twice"),
        (("--data", "NaN"), "--data is not JSON"),
        (("--file", "/does/not/exist"), "cannot read /does/not/exist: No such file or directory"),
    ],
)
def test_push_refuses_what_is_not_json(shell: Shell, words: tuple[str, ...], message: str) -> None:
    code, _, err, operations = shell.run("push", "sender", *words)
    assert code == 1
    assert message in err
    assert operations.asked == []


def test_a_rejected_push_says_which_rule_failed(shell: Shell) -> None:
    refusal = Rejected("rule 'data.age >= 18' failed", packet_id=ID)
    code, out, err, _ = shell.run("push", "sender", "--data", "{}", push=refusal)
    assert (code, out) == (1, "")
    assert "error: rule 'data.age >= 18' failed" in err
    _, out, err, _ = shell.run("push", "sender", "--data", "{}", "--json", push=refusal)
    assert json.loads(out) == {
        "ok": False,
        "error": "rule 'data.age >= 18' failed",
        "hint": "",
        "code": "rejected",
        "packet_id": ID,
    }
    assert err == ""


def test_a_push_into_a_stopped_pipeline_says_so(shell: Shell) -> None:
    stopped = InvalidState(
        "pipeline 'sender' is not running", hint="start it with: pipo start sender"
    )
    code, _, err, _ = shell.run("push", "sender", "--data", "1", push=stopped)
    assert code == 1
    assert err == (
        "error: pipeline 'sender' is not running\n  hint: start it with: pipo start sender\n"
    )


def test_the_dead_letters_of_a_pipeline(shell: Shell) -> None:
    reply = pipo_pb2.ListPacketsReply(total=0, source="journal")
    words = ("dlq", "sender", "--limit", "5", "--after", ID)
    code, out, _, operations = shell.run(*words, list_dead_letters=reply)
    assert (code, out) == (0, "0 of 0 dead-lettered\n")
    request = operations.asked[0][1]
    assert (request.pipeline, request.limit, request.after) == ("sender", 5, ID)
    _, out, _, _ = shell.run("dlq", "--json", "sender", list_dead_letters=reply)
    assert json.loads(out)["source"] == "journal"


def test_replay_and_purge_say_who(shell: Shell) -> None:
    code, out, _, operations = shell.run(
        "dlq", "replay", "sender", ID, "01X", replay=pipo_pb2.ReplayReply(replayed=2)
    )
    assert (code, out.splitlines()[0]) == (
        0,
        "replayed 2 packet(s) from the dead-letter queue of sender",
    )
    request = operations.asked[0][1]
    assert (list(request.ids), request.all, request.by) == ([ID, "01X"], False, os_user())
    words = ("dlq", "purge", "sender", "--all", "--by", "Ada", "--json")
    _, out, _, operations = shell.run(*words, purge=pipo_pb2.PurgeReply(purged=1, packet_ids=[ID]))
    assert json.loads(out) == {"purged": 1, "packet_ids": [ID], "skipped": [], "engine": "up"}
    request = operations.asked[0][1]
    assert (list(request.ids), request.all, request.by) == ([], True, "Ada")


def test_a_rerun_is_dry_without_yes(shell: Shell) -> None:
    from_: dict[str, Any] = {"from": "shape"}
    reply = pipo_pb2.RerunReply(dry=True, **from_)
    words: tuple[str, ...] = (
        "rerun",
        "sender",
        "--from",
        "shape",
        "--last",
        "2",
        "--since",
        "1h",
        "--current",
    )
    code, out, _, operations = shell.run(*words, rerun=reply)
    assert (code, out) == (
        0,
        "plan: rerun 0 packet(s) of sender from 'shape', each on its own version\n",
    )
    request = operations.asked[0][1]
    assert (getattr(request, "from"), request.last, request.since) == ("shape", 2, "1h")
    assert (request.current, request.dry, request.by) == (True, True, os_user())
    words = ("rerun", "sender", ID, "01X", "--from", "output", "--yes", "--by", "Ada", "--json")
    _, out, _, operations = shell.run(*words, rerun=reply)
    told = json.loads(out)
    assert (told["from"], told["rerun"], told["skipped_count"]) == ("shape", 0, 0)
    request = operations.asked[0][1]
    assert (list(request.ids), request.dry, request.by) == ([ID, "01X"], False, "Ada")


@pytest.mark.parametrize(
    "words",
    [
        (ID,),
        ("--from", "shape"),
        ("--from", "shape", ID, "--all"),
        ("--from", "shape", "--all", "--last", "2"),
        ("--from", "shape", ID, "--since", "1h"),
        ("--from", "shape", "--last", "0"),
    ],
)
def test_a_rerun_says_from_where_and_which(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, _, operations = shell.run("rerun", "sender", *words)
    assert (code, out, operations.asked) == (2, "", [])


@pytest.mark.parametrize(
    ("action", "head", "where", "last"),
    [
        ("retry", "retrying 1 packet(s) of sender", "shape", "follow them with pipo packets "),
        ("dead_letter", "dead-lettered 1 packet(s) of sender", "dead_lettered", "pipo dlq sender "),
        ("drop", "dropped 1 packet(s) of sender", "filtered", f"  {ID}  "),
    ],
)
def test_a_resolution(shell: Shell, action: str, head: str, where: str, last: str) -> None:
    node = "shape" if action == "retry" else None
    unit = pipo_pb2.ResolvedUnit(packet_id=ID, state=where, node=node)
    reply = pipo_pb2.ResolveReply(action=action, resolved=[unit])
    words = ("resolve", "sender", ID, "--action", action, "--reason", "up")
    code, out, _, operations = shell.run(*words, resolve=reply)
    lines = out.splitlines()
    assert (code, lines[0], lines[1]) == (0, head, f"  {ID}  → {where}")
    assert lines[-1].startswith(last)
    request = operations.asked[0][1]
    assert (list(request.ids), request.action, request.reason) == ([ID], action, "up")
    assert (request.by, request.by_kind) == (os_user(), "human")
    _, out, _, operations = shell.run(*words, "--by", "Ada", "--json", resolve=reply)
    assert json.loads(out)["resolved"] == [{"packet_id": ID, "state": where, "node": node}]
    assert operations.asked[0][1].by == "Ada"


@pytest.mark.parametrize(
    "words", [(ID,), ("--action", "retry"), (ID, "--action", "skip")], ids=["what", "whom", "skip"]
)
def test_a_resolution_says_what_and_whom(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, _, operations = shell.run("resolve", "sender", *words)
    assert (code, out, operations.asked) == (2, "", [])


def test_a_history_and_a_diff(shell: Shell) -> None:
    reply = pipo_pb2.ListVersionsReply(source="journal")
    code, out, _, operations = shell.run("history", "sender", list_versions=reply)
    assert (code, out) == (0, "sender has no versions yet; its first start makes one\n")
    assert operations.asked[0][1].pipeline == "sender"
    _, out, _, _ = shell.run("history", "sender", "--json", list_versions=reply)
    assert json.loads(out) == {
        "versions": [],
        "current": None,
        "latest": 0,
        "source": "journal",
        "engine": "up",
    }
    ends: dict[str, Any] = {"from": 1, "to": 2}
    same = pipo_pb2.DiffReply(**ends, identical=True)
    code, out, _, operations = shell.run("diff", "sender", "1", "v2", diff=same)
    assert (code, out) == (0, "v1 and v2 are identical\n")
    request = operations.asked[0][1]
    assert (request.pipeline, getattr(request, "from"), request.to) == ("sender", "1", "v2")


def test_a_rollback_says_who(shell: Shell) -> None:
    reply = pipo_pb2.RollbackReply(version=3, previous=2, changed=True, rolled_back_to=1)
    code, out, _, operations = shell.run("rollback", "sender", "v1", rollback=reply)
    assert (code, out.splitlines()[0]) == (
        0,
        "rolled sender back to v1: new packets use it as v3",
    )
    request = operations.asked[0][1]
    assert (request.version, request.by) == ("v1", os_user())


def test_an_apply_sends_the_file_and_what_it_names(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.schema.json").write_text("{}")
    file = tmp_path / "other.pipo"
    file.write_text(
        "pipo: 1\nname: sender\ninput: { via: push, schema: ./a.schema.json }\n"
        "output: { from: input, to: stdout }\n"
    )
    words = ("apply", "sender", str(file), "--reason", "why", "--by", "Ada", "--json")
    reply = pipo_pb2.ApplyReply(version=2, previous=1, changed=True)
    code, out, _, operations = shell.run(*words, apply=reply)
    assert (code, json.loads(out)["version"]) == (0, 2)
    request = operations.asked[0][1]
    assert (request.source, dict(request.files)) == (file.read_text(), {"./a.schema.json": "{}"})
    assert (request.reason, request.by) == ("why", "Ada")


def test_a_file_that_cannot_be_applied_asks_nobody(shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pipo"
    broken.write_text("pipo: 1\nname: sender\n")
    code, _, err, operations = shell.run("apply", "sender", str(broken))
    assert (code, operations.asked) == (1, [])
    assert err.splitlines()[0].startswith(f"{broken}:1:1  error  P0")
    assert err.splitlines()[-2:] == [
        f"error: {broken} does not pass its check",
        "  hint: nothing was changed; mend it and try again",
    ]
    code, _, err, operations = shell.run("apply", "sender", str(tmp_path / "none.pipo"))
    assert (code, operations.asked) == (1, [])
    assert err.startswith("error: no such file: ")
    code, _, err, operations = shell.run("apply", "sender", str(tmp_path))
    assert (code, operations.asked) == (1, [])
    assert err.startswith(f"error: cannot read {tmp_path}")


@pytest.mark.parametrize("what", ["replay", "purge"])
@pytest.mark.parametrize("words", [(), (ID, "--all")])
def test_either_ids_or_all(shell: Shell, what: str, words: tuple[str, ...]) -> None:
    """Edge 385."""
    code, out, err, operations = shell.run("dlq", what, "sender", *words)
    assert (code, out, operations.asked) == (2, "", [])
    assert err.startswith("error: give either ids or --all\n  hint: ")


def test_the_engine_line_ends_a_text_made_without_one(shell: Shell, tmp_path: Path) -> None:
    nothing = pipo_pb2.ListPipelinesReply()
    home = ("--home", str(tmp_path))
    _, out, _, _ = shell.run("status", *home, engine="down", list_pipelines=nothing)
    assert out == f"no pipelines in {tmp_path}\nengine: down\n"
    _, out, _, _ = shell.run("status", *home, engine="up", list_pipelines=nothing)
    assert out == f"no pipelines in {tmp_path}\n"
    _, out, _, _ = shell.run("status", "--url", "http://h:1", list_pipelines=nothing)
    assert out == "no pipelines\n"


def test_the_help_of_packets_names_every_state() -> None:
    assert observe.STATES == PACKET_STATES


def test_json_is_the_message_and_the_engine(shell: Shell) -> None:
    reply = pipo_pb2.ListPacketsReply(total=0, source="journal")
    for words in (("packets", "x", "--json"), ("--json", "packets", "x")):
        _, out, _, _ = shell.run(*words, engine="down", list_packets=reply)
        assert json.loads(out) == {
            "packets": [],
            "total": 0,
            "next": None,
            "source": "journal",
            "engine": "down",
        }


def test_json_keeps_every_digit(shell: Shell) -> None:
    trace = packet_pb2.Trace(packet=packet_pb2.Packet(data=b'{"n":123456789012345678901234}'))
    _, out, _, _ = shell.run("inspect", "x", ID, "--json", inspect=trace)
    assert '"data":{"n":123456789012345678901234}' in out


def test_packets_pass_on_state_limit_and_page(shell: Shell) -> None:
    _, _, _, operations = shell.run(
        *("packets", "x", "--state", "delivered", "--limit", "2", "--after", ID),
        list_packets=pipo_pb2.ListPacketsReply(),
    )
    assert operations.asked[0][1] == pipo_pb2.ListPacketsRequest(
        pipeline="x", state="delivered", limit=2, after=ID
    )


def test_a_limit_out_of_range_is_usage(shell: Shell) -> None:
    assert shell.run("packets", "x", "--limit", "1001")[0] == 2
    assert shell.run("packets", "x", "--limit", "0")[0] == 2


def test_an_unknown_name(shell: Shell) -> None:
    unknown = NotFound("no pipeline named 'x'", hint="did you mean 'y'?")
    code, out, err, _ = shell.run("status", "x", get_pipeline=unknown)
    assert (code, out) == (1, "")
    assert err == "error: no pipeline named 'x'\n  hint: did you mean 'y'?\n"


@pytest.mark.parametrize("words", [(), ("x",)])
def test_looking_makes_no_home(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistyped = tmp_path / "hmoe"
    code = main(["--home", str(mistyped), "status", *words])
    shown = "".join(capsys.readouterr())
    assert (code, "no pipeline" in shown) == (len(words), True)
    assert not mistyped.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stauts",), "there is no command 'stauts'; did you mean 'status'?"),
        (("inspect", "x"), "Missing argument 'ID'."),
        (("status", "--bogus"), "No such option '--bogus'"),
        (("run", "x", "--json"), "pipo run has no --json"),
        (
            ("dlq", "sender", "replay", "--all"),
            "the action stands first: pipo dlq replay sender --all",
        ),
    ],
)
def test_usage_errors(shell: Shell, words: tuple[str, ...], message: str) -> None:
    code, out, err, _ = shell.run(*words)
    if "--json" in words:
        assert (code, err, json.loads(out)["code"]) == (2, "", "usage")
        return
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    code, out, err, _ = shell.run(*words, "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["code"] == "usage"


def test_version_before_and_after_a_command(shell: Shell) -> None:
    assert shell.run("--version")[:2] == (0, "pipo 0.1.0\n")
    assert shell.run("status", "--version")[:2] == (0, "pipo 0.1.0\n")


def test_stop_says_what_happens(shell: Shell) -> None:
    def said(**reply: Any) -> str:
        return shell.run("stop", "x", stop=pipo_pb2.StopReply(pipeline="x", **reply))[1]

    assert said(state="draining") == "draining x; it stops when its packets are done\n"
    assert said(state="stopped") == "stopped x\n"
    assert said(state="stopped", already=True) == "x is already stopped\n"


def test_pause_and_resume_say_what_happens(shell: Shell) -> None:
    def said(command: str, reply: Any) -> str:
        return shell.run(command, "x", **{command: reply})[1]

    pause, resume = pipo_pb2.PauseReply, pipo_pb2.ResumeReply
    assert said("pause", pause(pipeline="x", state="paused")) == "paused x\n"
    assert said("pause", pause(pipeline="x", already=True)) == "x is already paused\n"
    assert said("resume", resume(pipeline="x", state="active")) == "resumed x\n"
    assert said("resume", resume(pipeline="x", already=True)) == "x is not paused\n"


def test_a_pause_in_json_is_the_answer_of_the_api(shell: Shell) -> None:
    reply = pipo_pb2.PauseReply(pipeline="x", state="paused")
    _, out, _, operations = shell.run("pause", "x", "--json", pause=reply)
    assert json.loads(out) == {
        "pipeline": "x",
        "state": "paused",
        "already": False,
        "engine": "up",
    }
    assert operations.asked[0][1].reason == ""


def test_ack_says_where_the_packet_is(shell: Shell) -> None:
    reply = pipo_pb2.AckReply(packet_id="01P", state="verifying", acked=True)
    code, out, _, operations = shell.run("ack", "x", "01P", ack=reply)
    assert (code, out) == (0, "01P  acked  (verifying)\n")
    asked = operations.asked[0][1]
    assert (asked.pipeline, asked.packet_id, asked.by) == ("x", "01P", os_user())
    reply = pipo_pb2.AckReply(packet_id="01P", state="delivered", acked=True, already=True)
    _, out, _, operations = shell.run("ack", "x", "01P", "--by", "Ada", ack=reply)
    assert out == "01P  already acked  (delivered)\n"
    assert operations.asked[0][1].by == "Ada"


def test_an_ack_in_json_is_the_answer_of_the_api(shell: Shell) -> None:
    reply = pipo_pb2.AckReply(packet_id="01P", state="verifying", acked=True)
    _, out, _, _ = shell.run("ack", "x", "01P", "--json", ack=reply)
    assert json.loads(out) == {
        "packet_id": "01P",
        "state": "verifying",
        "acked": True,
        "already": False,
        "engine": "up",
    }


def test_restart_says_what_happens(shell: Shell) -> None:
    def said(**info: Any) -> str:
        return shell.run("restart", "x", restart=pipo_pb2.PipelineInfo(name="x", **info))[1]

    assert said(state="running", pid=7) == "restarted x (pid 7)\n"
    assert said(state="stopping") == "draining x; it starts again when its packets are done\n"
    up = pipo_pb2.PipelineInfo(name="x", state="running", pid=7, ttl="1h", listen=8790)
    code, out, _, operations = shell.run(
        "restart", "x", "--ttl", "1h", "--listen", "8790", "--json", restart=up
    )
    assert operations.asked == [
        ("restart", pipo_pb2.RestartRequest(pipeline="x", ttl="1h", listen=8790))
    ]
    told = json.loads(out)
    assert (code, told["ttl"], told["listen"], told["detached"]) == (0, "1h", 8790, False)


def test_stop_now(shell: Shell) -> None:
    reply = pipo_pb2.StopReply(pipeline="x", state="stopped")
    _, _, _, operations = shell.run("stop", "x", "--now", stop=reply)
    assert operations.asked[0][1].now


def test_events_are_read_to_the_last_page(shell: Shell) -> None:
    pages = [
        pipo_pb2.ListEventsReply(events=[packet_pb2.Event(seq=1, type="a")], more=True),
        pipo_pb2.ListEventsReply(events=[packet_pb2.Event(seq=2, type="b")], more=False),
    ]
    _, out, _, operations = shell.run("events", "x", list_events=pages)
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2"]
    assert [request.after_seq for _, request in operations.asked] == [0, 1]


def test_followed_events_are_one_json_object_each(shell: Shell) -> None:
    pages = [pipo_pb2.ListEventsReply(events=[packet_pb2.Event(seq=n, type="a") for n in (1, 2)])]
    _, out, _, _ = shell.run("events", "x", "-f", "--json", watch_events=pages)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2]


def test_logs_of_one_node(shell: Shell) -> None:
    reply = pipo_pb2.LogsReply(lines=["node=x done", "node=x-2 done"], next=30)
    _, out, _, _ = shell.run("logs", "p", "--node", "x", logs=reply)
    assert out == "node=x done\n"


def test_a_missing_log(shell: Shell) -> None:
    code, _, err, _ = shell.run("logs", "p", logs=pipo_pb2.LogsReply())
    assert code == 1
    assert "no log of p yet" in err


def test_followed_logs_go_on_from_the_offset(shell: Shell) -> None:
    replies = [
        pipo_pb2.LogsReply(lines=["one"], next=4),
        pipo_pb2.LogsReply(lines=["two"], next=8),
        Unavailable("gone"),
    ]
    observe_pause = observe.FOLLOW_EVERY_S
    observe.FOLLOW_EVERY_S = 0
    try:
        code, out, _, operations = shell.run("logs", "p", "-f", logs=replies)
    finally:
        observe.FOLLOW_EVERY_S = observe_pause
    assert (code, out) == (1, "one\ntwo\n")
    assert [r.after for _, r in operations.asked[1:]] == [4, 8]


def test_watching_asks_again_and_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([None, None, KeyboardInterrupt()])

    async def pause(seconds: float) -> None:
        assert seconds == observe.WATCH_EVERY_S
        if (end := next(waits)) is not None:
            raise end

    monkeypatch.setattr("pipo_cli.observe.asyncio.sleep", pause)
    reply = pipo_pb2.ListPipelinesReply()
    words = ("status", "--watch", "--url", "http://h:1")
    code, out, _, operations = shell.run(*words, list_pipelines=reply)
    assert (code, out) == (0, "no pipelines\n" * 3)
    assert len(operations.asked) == 3


def test_progress_shows_at_once_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(settings: Settings) -> str:
        with progress(settings, "starting x"):
            pass
        return capsys.readouterr().err

    monkeypatch.setattr("pipo_cli.progress.SILENT_S", 600.0)
    assert shown(Settings()) == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("PIPO_PLAIN", "1")
    assert shown(Settings()) == "starting x ...\n"
    assert shown(Settings(json=True)) == ""
    monkeypatch.delenv("PIPO_PLAIN")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "starting x" in shown(Settings())


def test_off_a_terminal_only_what_takes_long_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()

    def tell(words: str) -> None:
        print(words, file=sys.stderr)
        told.set()

    monkeypatch.setattr("pipo_cli.progress.SILENT_S", 0.0)
    monkeypatch.setattr("pipo_cli.progress._tell", tell)
    with progress(Settings(), "restarting x"):
        assert told.wait(60.0)
    assert capsys.readouterr().err == "restarting x\n"
    told.clear()
    with progress(Settings(json=True), "restarting x"):
        pass
    assert (told.is_set(), capsys.readouterr().err) == (False, "")


def test_a_bug_says_that_it_is_one(shell: Shell) -> None:
    code, out, err, _ = shell.run("status", "--json", list_pipelines=ValueError("odd"))
    assert (code, err, json.loads(out)["code"]) == (1, "", "internal")
    assert "this is a bug" in json.loads(out)["error"]


def test_bytes_that_the_locale_did_not_decode_are_pushed_as_they_were_typed(shell: Shell) -> None:
    typed = '{"cheese": "käse"}'.encode().decode("ascii", "surrogateescape")
    _, _, _, operations = shell.run("push", "sender", "--data", typed, push=ACCEPTED)
    assert operations.asked[0][1].data == '{"cheese": "käse"}'.encode()


def test_a_name_that_is_no_text_is_refused(shell: Shell) -> None:
    code, out, err, _ = shell.run("packets", "\udcff")
    assert (code, out) == (1, "")
    assert err.startswith(r"error: '\udcff' is not UTF-8 text")


def test_the_next_page_is_of_the_same_listing(shell: Shell) -> None:
    page = pipo_pb2.ListPacketsReply(total=9, next=ID)
    words = ("packets", "x", "--state", "delivered", "--limit", "2")
    _, out, _, _ = shell.run(*words, list_packets=page)
    assert f"go on with pipo packets x --state delivered --limit 2 --after {ID}" in out


def test_no_stack_comes_up_for_a_name_that_nobody_knows(shell: Shell, tmp_path: Path) -> None:
    code, out, err, _ = shell.run("start", "nope")
    assert (code, out) == (1, "")
    assert err.startswith("error: no pipeline named 'nope'\n  hint: there is none yet")
    assert not list(tmp_path.glob("home/logs/services/stack*"))
