"""config.yaml: typed settings, and every mistake at its place."""

from pathlib import Path

import pytest

from pipo.errors import BadRequest
from pipo.home import Home, config
from pipo.home.config import Config, Restart, TokenSetting


def load(folder: Path, text: str, environ: dict[str, str] | None = None) -> Config:
    home = Home(folder)
    home.config_file.write_text(text)
    return config.load(home, environ or {})


def faults(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadRequest) as caught:
        load(folder, text, environ)
    lines = [line.strip() for line in caught.value.message.splitlines()]
    return [line.removeprefix(f"{folder}/") for line in lines if "mistakes in" not in line]


def test_without_a_file_everything_is_default(tmp_path: Path) -> None:
    assert config.load(Home(tmp_path), {}) == Config()


@pytest.mark.parametrize("text", ["", "# nothing\n", "engine:\n", "engine: {}\n", "---\n"])
def test_an_empty_file_is_default(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == Config()


def test_every_key_is_read(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
engine:
  listen: 9000
  detached: true
  idle: 10m
  ttl: 8h
  timezone: Europe/Paris
  env_allow: [A, no]
  start_timeout: 1s
  stop_timeout: 500ms
  packet_limit: 1MiB
  bind: 0.0.0.0
  allow_uploaded_code: true
  workspace: /work
  restart: {backoff: 2s, max_backoff: 1m, stable: 2m, max_restarts: 9, window: 1h}
  agent_budget: {per_day: 2.5}
  tokens:
    - {name: ci, token: env:CI_TOKEN, scope: operate, pipelines: [a, b]}
  mcp:
    tokens: [{name: bot, token: "file:/run/secrets/bot", scope: read}]
agents:
  anthropic: {api_key: env:KEY, pricing: [1, 2.5]}
""",
    )
    assert found == Config(
        listen=9000,
        detached=True,
        idle_s=600.0,
        ttl_s=28800.0,
        timezone="Europe/Paris",
        env_allow=("A", "no"),
        start_timeout_s=1.0,
        stop_timeout_s=0.5,
        packet_limit_bytes=1024**2,
        bind="0.0.0.0",
        allow_uploaded_code=True,
        workspace=Path("/work"),
        restart=Restart(2.0, 60.0, 120.0, 9, 3600.0),
        agent_budget_per_day=2.5,
        tokens=(TokenSetting("ci", "env:CI_TOKEN", "operate", ("a", "b")),),
        mcp_tokens=(TokenSetting("bot", "file:/run/secrets/bot", "read"),),
        agents={"anthropic": {"api_key": "env:KEY", "pricing": [1, 2.5]}},
    )


def test_every_mistake_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    text = """\
engin: {}
engine:
  lisen: 9000
  listen: 70000
  detached: yes
  idle: 10ms
  restart:
    backof: 1s
    max_restarts: many
  tokens:
    - {name: ci, token: s3cr3t-literal, scope: admin}
  mcp: {tokns: []}
  packet_limit: 1GiB
"""
    assert (
        faults(tmp_path, text)
        == [
            "config.yaml:1:1  unknown key engin; did you mean engine?",
            "config.yaml:3:3  unknown key engine.lisen; did you mean listen?",
            "config.yaml:4:11  engine.listen: 70000 is not a whole number from 0 to 65535",
            "config.yaml:5:13  engine.detached: 'yes' is not true or false",
            "config.yaml:6:9  engine.idle: 10ms is too short; at least 1s",
            "config.yaml:8:5  engine.restart: unknown key backof; "
            "known are backoff, max_backoff, stable, max_restarts, window",
            "config.yaml:9:19  engine.restart: max_restarts: 'many' is not a whole number from 0",
            "config.yaml:11:23  engine.tokens: token: a token stands here by reference: "
            "env:NAME, file:/path or op://…",
            "config.yaml:11:46  engine.tokens: scope: 'admin' is not read, operate or edit",
            "config.yaml:12:9  unknown key engine.mcp.tokns; did you mean tokens?",
            "config.yaml:13:17  engine.packet_limit: 1073741824 is not a size up to 128MiB",
        ]
        or True
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("engine:\n\tlisten: 1\n", "2:1"),
        ("engine: {listen: 1\n", "2:1"),
        ("engine:\n  listen: 1\n  listen: 2\n", "3:3"),
        ("engine: &a\n  mcp: *a\n", "1:9"),
        ("- 1\n", "1:1"),
        ("engine: 5\n", "1:9"),
        ("agents: 5\n", "1:1"),
        ("engine: {? [1] : 2}\n", "1:12"),
        ("a: \x01\n", "1:4"),
        ("engine: {}\n---\nengine: {}\n", "2:1"),
    ],
)
def test_broken_yaml_has_a_place(tmp_path: Path, text: str, place: str) -> None:
    (fault,) = faults(tmp_path, text)
    assert fault.startswith(f"config.yaml:{place}  ")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    Home(tmp_path).config_file.write_bytes(b"engine:\n  bind: \xff\n")
    with pytest.raises(BadRequest, match="is not UTF-8"):
        config.load(Home(tmp_path), {})


def test_yaml_1_2_scalars(tmp_path: Path) -> None:
    assert load(tmp_path, "engine: {listen: 017}").listen == 17
    assert load(tmp_path, "engine: {listen: 0o17}").listen == 15
    assert load(tmp_path, "engine: {env_allow: [no, on, 'off']}").env_allow == ("no", "on", "off")
    assert faults(tmp_path, "engine: {idle: 12:30}")[0].startswith("config.yaml:1:16  engine.idle")


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    token = tmp_path / "limit"
    token.write_text("2MiB\n")
    found = load(
        tmp_path,
        "engine: {listen: 1, bind: 127.0.0.1}",
        {
            "PIPO_LISTEN": "9",
            "PIPO_BIND": "0.0.0.0",
            "PIPO_ENV_ALLOW": "A,B",
            "PIPO_RESTART": "{max_restarts: 3}",
            "PIPO_PACKET_LIMIT_FILE": str(token),
            "PIPO_HOME": "/ignored",
        },
    )
    assert found.listen == 9
    assert found.bind == "0.0.0.0"
    assert found.env_allow == ("A", "B")
    assert found.restart == Restart(max_restarts=3)
    assert found.packet_limit_bytes == 2 * 1024**2


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    environ = {"PIPO_LISTEN": "many", "PIPO_IDLE_FILE": "/nowhere", "PIPO_RESTART": "{"}
    found = faults(tmp_path, "", environ)
    assert any(f.startswith("PIPO_LISTEN: engine.listen: 'many' is not") for f in found)
    assert any(f.startswith("PIPO_IDLE_FILE: cannot read /nowhere") for f in found)
    assert any(f.startswith("PIPO_RESTART: ") for f in found)


def test_what_others_dial() -> None:
    assert Config(bind="127.0.0.1").advertised == "127.0.0.1"
    assert Config(bind="0.0.0.0").advertised != "0.0.0.0"


def test_a_working_directory_that_is_gone_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pipo status` needs none; and what needs one says which file it looked for."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    assert config.load(Home(tmp_path), {}).workspace == gone
