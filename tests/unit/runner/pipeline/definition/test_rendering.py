"""`with:` rendered: templates, literals, and paths that no packet leads astray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.exec.manifest import MANIFEST as EXEC
from pipo.connectors.file.manifest import MANIFEST as FILE
from pipo.connectors.http.manifest import MANIFEST as HTTP
from pipo.connectors.sqlite.manifest import MANIFEST as SQLITE
from pipo.connectors.telegram.manifest import MANIFEST as TELEGRAM
from pipo.lang.faults import LanguageError
from pipo_runner.pipeline.definition.rendering import PathTemplate, RenderError, Settings

ROW = SQLITE.output.schema if SQLITE.output else {}
RECORD = FILE.output.schema if FILE.output else {}
PROGRAM = EXEC.tap.schema if EXEC.tap else {}
TENANT = "./out/${data.tenant}/day.jsonl"


def render(raw: dict[str, Any], data: Any, folder: Path, schema: Any = ROW, **more: Any) -> Any:
    return Settings(raw, schema, folder).render({"data": data, "env": {}, "secrets": {}} | more)


def path_of(text: str, folder: Path, data: Any = None, **more: Any) -> str:
    return PathTemplate(text, folder).render({"data": data, "env": {}, "secrets": {}} | more)


# ── settings ─────────────────────────────────────────────────────────────────


def test_literals_stay_and_templates_render(tmp_path: Path) -> None:
    raw = {
        "path": "./people.db",
        "table": "people",
        "columns": {"name": "${data.name}", "all": {"n": ["${data.n}", "x${data.n}"]}},
        "create": True,
    }
    assert render(raw, {"name": "Ada", "n": 12345678901234567890}, tmp_path) == {
        "path": str(tmp_path / "people.db"),
        "table": "people",
        "columns": {"name": "Ada", "all": {"n": [12345678901234567890, "x12345678901234567890"]}},
        "create": True,
    }


def test_constant_settings_are_rendered_once(tmp_path: Path) -> None:
    settings = Settings({"path": "./a.db", "table": "t", "create": True}, ROW, tmp_path)
    assert settings.constant is not None
    assert settings.render({"data": 1}) is settings.render({"data": 2})
    assert settings.names == frozenset()


def test_names_tell_what_the_templates_read(tmp_path: Path) -> None:
    raw = {"path": "./${env.DAY}.db", "table": "t", "columns": {"k": "${meta.key}"}}
    assert Settings(raw, ROW, tmp_path).names == {"env", "meta"}


def test_a_missing_column_becomes_null_and_stays(tmp_path: Path) -> None:
    raw = {"path": "./a.db", "table": "t", "columns": {"a": "${data.a}", "b": "${data.b}"}}
    assert render(raw, {"a": 1}, tmp_path)["columns"] == {"a": 1, "b": None}


def test_a_missing_field_elsewhere_is_left_out(tmp_path: Path) -> None:
    schema: dict[str, Any] = {"properties": {"message": {}}}
    assert render({"message": "${data.a}"}, {}, tmp_path, schema) == {}


def test_an_expression_that_fails_names_itself(tmp_path: Path) -> None:
    raw = {"path": "./a.db", "table": "t", "columns": {"a": "${upper(data.n)}"}}
    with pytest.raises(LanguageError, match=r"upper\(\)"):
        render(raw, {"n": 1}, tmp_path)


def test_a_list_of_paths_is_rendered_path_by_path(tmp_path: Path) -> None:
    schema = {"properties": {"outputs": {"x-path": True}}}
    raw = {"outputs": ["./a.txt", "./${data.n}.txt"]}
    assert render(raw, {"n": 7}, tmp_path, schema) == {
        "outputs": [str(tmp_path / "a.txt"), str(tmp_path / "7.txt")]
    }
    with pytest.raises(RenderError):
        render(raw, {"n": ".."}, tmp_path, schema)


# ── paths (decision 23, R22) ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "stands"),
    [
        ("acme", "out/acme/day.jsonl"),
        ("a/b", "out/a/b/day.jsonl"),
        (" ", "out/ /day.jsonl"),
        ("..\\x", "out/..\\x/day.jsonl"),
        ("...", "out/.../day.jsonl"),
        ("é" * 127, f"out/{'é' * 127}/day.jsonl"),
        (7, "out/7/day.jsonl"),
        (1.5, "out/1.5/day.jsonl"),
        (True, "out/true/day.jsonl"),
        ("${data.x}", "out/${data.x}/day.jsonl"),
    ],
)
def test_names_of_packets_stay_inside(tmp_path: Path, value: Any, stands: str) -> None:
    assert path_of(TENANT, tmp_path, {"tenant": value}) == str(tmp_path / stands)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("../../escape", "would leave its folder: '../../escape'"),
        ("/escape-abs", "would leave its folder: '/escape-abs'"),
        ("..", "would leave its folder: '..'"),
        (".", "would leave its folder: '.'"),
        ("a/../b", "would leave its folder"),
        ("a//b", "would leave its folder"),
        ("a/", "would leave its folder"),
        ("", "renders an empty name"),
        ("a\0b", "renders a NUL: 'a\\x00b'"),
        ("x" * 300, "renders a name of 300 bytes, more than 255"),
        ("é" * 128, "renders a name of 256 bytes"),
        ("\ud800", "renders text that is no UTF-8"),
        (None, "needs a value that the packet does not have"),
        ({"a": 1}, "renders an object, not a name"),
        ([1], "renders a list, not a name"),
    ],
)
def test_other_values_are_errors_that_name_the_template(
    tmp_path: Path, value: Any, says: str
) -> None:
    with pytest.raises(RenderError) as caught:
        path_of(TENANT, tmp_path, {"tenant": value})
    assert f"the path '{TENANT}'" in str(caught.value)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_missing_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="needs a value that the packet does not have"):
        path_of(TENANT, tmp_path, {})


@pytest.mark.parametrize(
    "text",
    ["./out/${data.a}${data.b}/x", "./out/${data.a}${data.b}", "./out/.${data.a}/x"],
)
def test_parts_that_make_two_dots_together_do_not_lead_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(RenderError):
        path_of(text, tmp_path, {"a": ".", "b": "."})


def test_the_folder_before_the_first_hole_is_the_lane(tmp_path: Path) -> None:
    assert path_of("./out/x-${data.a}.jsonl", tmp_path, {"a": "b/c"}) == str(
        tmp_path / "out/x-b/c.jsonl"
    )
    assert path_of("${data.a}.jsonl", tmp_path, {"a": "b"}) == str(tmp_path / "b.jsonl")
    assert path_of("../up/${data.a}", tmp_path / "in", {"a": "b"}) == str(tmp_path / "up/b")
    assert path_of(f"{tmp_path}/${{data.a}}", Path("/elsewhere"), {"a": "b"}) == str(tmp_path / "b")


def test_what_the_operator_sets_may_lead_anywhere(tmp_path: Path) -> None:
    text = "${env.ROOT}/${data.a}.jsonl"
    assert path_of(text, tmp_path, {"a": "b"}, env={"ROOT": "/srv/x/../y"}) == "/srv/y/b.jsonl"
    with pytest.raises(RenderError, match="would leave its folder"):
        path_of(text, tmp_path, {"a": "../b"}, env={"ROOT": "/srv"})


def test_a_hole_that_reads_a_packet_at_all_is_a_packets(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="would leave its folder"):
        path_of("./out/${env.DAY ?? data.a}/x", tmp_path, {"a": "../b"})


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/linked").symlink_to("../elsewhere")
    with pytest.raises(RenderError, match=r"through a link: 'linked/day\.jsonl'"):
        path_of(TENANT, tmp_path, {"tenant": "linked"})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_that_stays_inside_works(tmp_path: Path) -> None:
    (tmp_path / "out/acme").mkdir(parents=True)
    (tmp_path / "out/alias").symlink_to("acme")
    assert path_of(TENANT, tmp_path, {"tenant": "alias"}) == str(tmp_path / "out/alias/day.jsonl")


def test_a_file_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out/acme").mkdir(parents=True)
    (tmp_path / "secret").touch()
    (tmp_path / "out/acme/day.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(RenderError, match="through a link"):
        path_of(TENANT, tmp_path, {"tenant": "acme"})


def test_links_before_the_lane_are_the_authors(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    assert path_of(TENANT, tmp_path, {"tenant": "a"}) == str(tmp_path / "out/a/day.jsonl")


def test_a_path_without_a_hole_is_made_once(tmp_path: Path) -> None:
    template = PathTemplate("./out/../day.jsonl", tmp_path)
    assert template.constant == str(tmp_path / "day.jsonl")


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("${data.none}", None),
        ({"email": "${data.none}"}, {"email": None}),
        ({"a": {"b": "${data.none}", "c": "${data.n}"}}, {"a": {"b": None, "c": 1}}),
        ("x ${data.none}", "x "),
    ],
)
def test_what_a_check_expects_does_not_become_less(
    tmp_path: Path, match: Any, expected: Any
) -> None:
    """Else a packet without the field would pass whatever is there (edge 199)."""
    schema = HTTP.checks["follow_up"].schema
    raw = {"url": "http://h/", "match": match}
    assert render(raw, {"n": 1}, tmp_path, schema)["match"] == expected


@pytest.mark.parametrize(
    ("photo", "rendered"),
    [
        ("https://h/../${data.name}", "https://h/../../etc/passwd"),
        ("${data.url}", "http://h/p.jpg"),
        ("./${data.plain}.jpg", "{folder}/cat.jpg"),
        ("p.jpg", "{folder}/p.jpg"),
        ("http://h/p.jpg", "http://h/p.jpg"),
    ],
)
def test_an_address_may_stand_where_a_path_does(tmp_path: Path, photo: str, rendered: str) -> None:
    data = {"name": "../etc/passwd", "url": "http://h/p.jpg", "plain": "cat"}
    schema = TELEGRAM.output.schema if TELEGRAM.output else {}
    made = render({"photo": photo}, data, tmp_path, schema)["photo"]
    assert made == rendered.format(folder=tmp_path)


@pytest.mark.parametrize("value", ["/etc/passwd", "../x", "file:///etc/passwd", "HTTP://x"])
def test_no_packet_names_a_file_outside_the_folder(tmp_path: Path, value: str) -> None:
    schema = TELEGRAM.output.schema if TELEGRAM.output else {}
    with pytest.raises(RenderError, match="would leave its folder"):
        render({"photo": "${data.photo}"}, {"photo": value}, tmp_path, schema)


def test_what_the_pipelines_inputs_fetched_may_be_sent(tmp_path: Path) -> None:
    """And no other file of the home, nor what only begins like that folder."""
    folder, files = tmp_path / "work", tmp_path / "home/pipelines/p/files"
    files.mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (files / "out").symlink_to(tmp_path / "secret")
    (files / "in").symlink_to(files / "u-cat.jpg")
    schema = TELEGRAM.output.schema if TELEGRAM.output else {}
    made = Settings({"photo": "${data.path}"}, schema, folder, files=files)
    for path in (f"{files}/u-cat.jpg", f"{files}/in"):
        assert made.render({"data": {"path": path}}) == {"photo": path}
    for path in (
        f"{files}/../journal.db",
        f"{files}2/x",
        f"{files}/out",
        f"{files}/a\0b",
        str(files),
        str(tmp_path / "secret"),
    ):
        with pytest.raises(RenderError):
            made.render({"data": {"path": path}})
    written = Settings({"path": "${data.path}"}, RECORD, folder, files=files)
    with pytest.raises(RenderError, match="would leave its folder"):
        written.render({"data": {"path": f"{files}/u-cat.jpg"}})


def test_a_checks_path_keeps_the_same_rules(tmp_path: Path) -> None:
    schema = FILE.checks["file_exists"].schema
    with pytest.raises(RenderError, match="would leave its folder"):
        render({"path": TENANT}, {"tenant": "../../etc"}, tmp_path, schema)


def test_the_outputs_path_keeps_them_too(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="would leave its folder"):
        render({"path": TENANT}, {"tenant": ".."}, tmp_path, RECORD)


# ── programs ─────────────────────────────────────────────────────────────────


def test_a_folder_that_is_not_named_is_the_pipelines_own(tmp_path: Path) -> None:
    made = Settings({"command": "date"}, PROGRAM, tmp_path)
    assert made.constant == {"command": "date", "cwd": str(tmp_path)}


@pytest.mark.parametrize(
    ("command", "data", "path"),
    [
        ("date", {}, "date"),
        ("./tools/go.sh", {}, "{}/tools/go.sh"),
        ("/bin/date", {}, "/bin/date"),
        ("${data.tool}", {"tool": "date"}, "date"),
        ("tools/${data.tool}", {"tool": "go.sh"}, "{}/tools/go.sh"),
    ],
)
def test_a_command_is_a_name_or_a_path(command: str, data: Any, path: str, tmp_path: Path) -> None:
    made = render({"command": command}, data, tmp_path, PROGRAM)
    assert made["command"] == path.format(tmp_path)


@pytest.mark.parametrize("tool", ["../x", "/bin/rm", "a/../../b", "", None])
def test_no_packet_leads_a_command_astray(tool: Any, tmp_path: Path) -> None:
    """R22."""
    for command in ("${data.tool}", "./tools/${data.tool}"):
        with pytest.raises(RenderError):
            render({"command": command}, {"tool": tool}, tmp_path, PROGRAM)


def test_outputs_are_relative_to_the_folder_it_runs_in(tmp_path: Path) -> None:
    raw = {"command": "x", "cwd": "./work", "outputs": ["./a.txt", "b/${data.n}.txt"]}
    made = render(raw, {"n": 7}, tmp_path, PROGRAM)
    assert made["outputs"] == [f"{tmp_path}/work/a.txt", f"{tmp_path}/work/b/7.txt"]
    raw["cwd"] = "./work/${data.n}"
    settings = Settings(raw, PROGRAM, tmp_path)
    assert settings.names == {"data"}
    for n in (7, 8, 7):
        made = settings.render({"data": {"n": n}, "env": {}, "secrets": {}})
        assert made["outputs"][0] == f"{tmp_path}/work/{n}/a.txt"


@pytest.mark.parametrize("name", ["../escape", "/escape-abs", "a/../../b", ".", "", "a\0b", None])
def test_no_packet_leads_an_output_astray(name: Any, tmp_path: Path) -> None:
    """R22: the same values in the `outputs` of an exec node."""
    raw = {"command": "x", "cwd": "./work", "outputs": ["./out/${data.name}/day.txt"]}
    with pytest.raises(RenderError):
        render(raw, {"name": name}, tmp_path, PROGRAM)


def test_a_link_leads_no_output_astray(tmp_path: Path) -> None:
    (tmp_path / "work/out").mkdir(parents=True)
    (tmp_path / "work/out/linked").symlink_to(tmp_path)
    raw = {"command": "x", "cwd": "./work", "outputs": ["./out/${data.name}/day.txt"]}
    with pytest.raises(RenderError, match="through a link"):
        render(raw, {"name": "linked"}, tmp_path, PROGRAM)
