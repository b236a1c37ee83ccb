"""Which definition runs, and the plans of older versions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.errors import Forbidden, InvalidPipeline, InvalidState, NotFound
from pipo.home import Home
from pipo.home.sent import Sent, file_of, keep
from pipo.journal.versions import Version
from pipo.lang.texts import Texts
from pipo_runner.pipeline.definition.versions import (
    Beginning,
    Definition,
    Edition,
    Plans,
    begin,
    read_definition,
)
from tests.unit.runner.pipeline.rig import (
    AT,
    FOLDER,
    PLAIN,
    edition_of,
    pipeline_of,
    stored,
    stored_version,
)

TEXT = f"pipo: 1\nname: people\n{PLAIN}"


def read(file: Path, name: str = "people") -> Definition:
    return read_definition(file, name, registry.manifests())


def plans() -> Plans:
    def no_steps(role: str, name: str, edition: Edition) -> Any:
        raise AssertionError(f"no step is asked for: {role} {name}")

    return Plans(registry.manifests(), FOLDER, no_steps)


def definition(text: str = TEXT, folder: Path = FOLDER) -> Definition:
    return Definition(Texts(text), folder / "people.pipo", pipeline_of(PLAIN))


def began(
    found: Definition, newest: Version | None = None, last_start: str | None = None
) -> Beginning:
    return begin(found, newest, last_start, registry.manifests(), AT)


CODE = "def clean(data):\n    return data\n"
WITH_CODE = """\
pipo: 1
name: people
fn: ./people.fn.py
input: { via: push }
nodes:
  clean: { from: input, transform: fn.clean }
output: { from: clean, to: file, with: { path: ./out.jsonl } }
"""


def test_what_was_sent_is_read_with_its_files_and_has_its_place_in_the_workspace(
    tmp_path: Path,
) -> None:
    """Decisions 37, 38: no file beside it counts, and its code runs where the operator says so."""
    home, workspace = Home(tmp_path / "home"), tmp_path / "work"
    text = Sent("people", WITH_CODE, {"./people.fn.py": CODE})
    file = file_of(home.pipeline("people"), text)
    keep(home.pipeline("people"), text, workspace)

    def found(*, code: bool) -> Definition:
        return read_definition(
            file,
            "people",
            registry.manifests(),
            home.root,
            uploaded_code=code,
        )

    (file.parent / "people.fn.py").write_text("raise SystemExit('not this one')")
    with pytest.raises(Forbidden, match=r"engine\.allow_uploaded_code is off"):
        found(code=False)
    assert not workspace.exists()
    read = found(code=True)
    assert (read.folder, read.texts.files) == (workspace / "people", text.files)
    assert read.folder.is_dir()
    assert (read.on_disk()("./people.fn.py"), read.on_disk()("./other.py")) == (CODE, None)


def test_a_file_is_read_with_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "people.pipo"
    file.write_text(TEXT)
    found = read(file)
    assert (found.source, found.file, found.pipeline.name) == (TEXT, file, "people")
    assert found.hash == hashlib.sha256(TEXT.encode()).hexdigest()


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not there") as caught:
        read(tmp_path / "people.pipo")
    assert "people" in caught.value.hint


@pytest.mark.parametrize("what", ["folder", "not utf-8"])
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, what: str) -> None:
    file = tmp_path / "people.pipo"
    if what == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff\xfe")
    with pytest.raises(NotFound, match="cannot be read"):
        read(file)


def test_a_file_with_another_pipeline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "people.pipo"
    file.write_text(TEXT)
    with pytest.raises(InvalidState, match="holds the pipeline 'people', not 'others'"):
        read(file, "others")


def test_a_bad_file_carries_its_findings(tmp_path: Path) -> None:
    file = tmp_path / "people.pipo"
    file.write_text(TEXT + "bufer: {}\n")
    with pytest.raises(InvalidPipeline) as caught:
        read(file)
    assert [finding.code for finding in caught.value.findings] == ["P002"]


def test_what_is_not_built_is_refused_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "people.pipo"
    settings = "{ model: m, prompt: p, schema: '${data.kind}.json' }"
    think = f"nodes: {{ think: {{ from: input, agent: claude_api, with: {settings} }} }}\n"
    file.write_text(TEXT.replace("from: input", "from: think") + think)
    with pytest.raises(InvalidState, match="agent nodes"):
        read(file)


def test_the_first_start_makes_version_one() -> None:
    """Edge 343."""
    made = began(definition())
    assert made.added is not None
    assert (made.added.version, made.added.reason, made.added.at) == (1, "first start", AT)
    assert (made.added.source, made.added.folder) == (TEXT, str(FOLDER))
    assert (made.added.author, made.added.author_kind) == ("human", "human")
    assert made.edition.version == 1


def test_an_unchanged_file_runs_the_newest_version() -> None:
    """Edge 342."""
    made = began(definition(), stored_version(7, TEXT))
    assert (made.added, made.edition.version) == (None, 7)


def test_a_changed_file_makes_the_next_version() -> None:
    """Edges 342 and 343."""
    made = began(definition(TEXT + "# a note\n"), stored_version(7, TEXT), definition().hash)
    assert made.added is not None
    assert (made.added.version, made.added.reason) == (8, "file changed")
    assert made.edition.texts.source == TEXT + "# a note\n"


def test_what_was_rolled_back_stands_as_long_as_the_file_does() -> None:
    """Edges 342 and 360: the newest version is another than the file, and runs."""
    older = TEXT + "concurrency: 9\n"
    found = definition()
    made = began(found, stored_version(3, older), found.hash)
    assert made.added is None
    assert (made.edition.version, made.edition.texts.source) == (3, older)
    assert made.edition.pipeline.concurrency == 9


def test_a_file_that_changes_to_what_runs_already_makes_no_version() -> None:
    """Edge 342: "unless all equal the newest version's"."""
    made = began(definition(), stored_version(3, TEXT), "of another file")
    assert (made.added, made.edition.version) == (None, 3)


def test_a_change_of_a_file_that_it_names_is_a_change() -> None:
    """Edge 342: the `fn` module and the schemas count as the file does."""
    schema = {"./a.schema.json": "{}"}
    found = Definition(Texts(TEXT, schema), FOLDER / "people.pipo", pipeline_of(PLAIN))
    newest = stored_version(1, TEXT, files={"./a.schema.json": "true"})
    made = began(found, newest, newest.hash)
    assert made.added is not None
    assert (made.added.reason, dict(made.added.files)) == ("file changed", schema)


def test_a_file_that_moved_is_a_version_of_its_own() -> None:
    """Its relative paths mean other files; packets of the older one go on where they began."""
    found = definition(folder=Path("/elsewhere"))
    made = began(found, stored_version(2, TEXT), found.hash)
    assert made.added is not None
    assert (made.added.version, made.added.reason) == (3, "file moved")
    assert made.edition.folder == Path("/elsewhere")


def test_another_file_of_the_same_name_is_named_in_the_history() -> None:
    """Its packets go on under the name, which may not be what its starter knows."""
    found = definition(folder=Path("/elsewhere"))
    made = began(found, stored_version(2, "of the other"), "of the other")
    assert made.added is not None
    assert made.added.reason == f"another file: {found.file}"


def test_what_was_rolled_back_moves_with_the_file() -> None:
    older = TEXT + "concurrency: 9\n"
    found = definition(folder=Path("/elsewhere"))
    made = began(found, stored_version(3, older), found.hash)
    assert made.added is not None
    assert (made.added.version, made.added.reason, made.added.source) == (4, "file moved", older)
    assert made.edition.folder == Path("/elsewhere")


def test_a_version_of_an_older_pipo_has_no_folder_and_has_not_moved() -> None:
    made = began(definition(folder=Path("/elsewhere")), stored_version(2, TEXT, folder=None))
    assert (made.added, made.edition.folder) == (None, Path("/elsewhere"))


def test_a_newest_version_that_no_longer_passes_refuses_the_start() -> None:
    """Edge 353: it says which, and that an edit makes the file win."""
    found = definition()
    with pytest.raises(InvalidState, match=r"v3, the newest version of people.*P002") as caught:
        began(found, stored_version(3, TEXT + "bufer: {}\n"), found.hash)
    assert "edit /pipelines/people.pipo" in caught.value.hint


async def test_older_versions_run_as_they_were_journaled() -> None:
    made = plans()
    made.put_in_force(edition_of(pipeline_of(PLAIN), 3))
    asked: list[int] = []

    async def version_of(version: int) -> Version:
        asked.append(version)
        return stored_version(version, TEXT + f"concurrency: {version}\n")

    await made.add_older({1, 2, 3}, version_of)
    assert asked == [1, 2]
    assert [made.of(version).pipeline.concurrency for version in (1, 2)] == [1, 2]
    assert made.current().version == 3


async def test_an_older_version_is_not_checked_against_todays_files() -> None:
    """Its paths may have moved on; the text passed its check when it was stored."""
    made = plans()
    made.put_in_force(edition_of(pipeline_of(PLAIN), 2))
    older = TEXT.replace("./people.db, table: people, create: true", "./gone.db, table: gone")
    await made.add_older({1}, stored(older))
    settings = made.of(1).output_settings.constant
    assert settings is not None
    assert settings["path"] == "/pipelines/gone.db"


@pytest.mark.parametrize("there", [True, False])
async def test_the_paths_of_an_older_version_are_those_of_its_own_folder(
    tmp_path: Path, there: bool
) -> None:
    """One that is gone was moved, and what it holds with it: then today's is meant."""
    folder = tmp_path / "before"
    if there:
        folder.mkdir()
    made = plans()

    async def version_of(version: int) -> Version:
        return stored_version(version, TEXT, folder=str(folder))

    await made.add_older({1}, version_of)
    settings = made.of(1).output_settings.constant
    assert settings is not None
    assert settings["path"] == f"{folder if there else FOLDER}/people.db"


async def test_an_older_version_is_admitted_before_it_is_planned() -> None:
    admitted: list[int] = []

    async def admit(edition: Edition) -> None:
        with pytest.raises(KeyError):
            made.of(edition.version)
        admitted.append(edition.version)

    made = Plans(registry.manifests(), FOLDER, lambda *words: None, admit=admit)  # type: ignore[arg-type]
    await made.add_older({1, 2}, stored(TEXT))
    await made.add_older({2}, stored(TEXT))
    assert admitted == [1, 2]


async def test_a_version_that_the_journal_lost_refuses_the_start() -> None:
    made = plans()

    async def version_of(version: int) -> None:
        return None

    with pytest.raises(InvalidState, match="packets of v4 and no such version"):
        await made.add_older({4}, version_of)


async def test_a_stored_text_that_is_no_pipeline_names_its_version() -> None:
    made = plans()
    with pytest.raises(InvalidPipeline, match=r"v4\.pipo"):
        await made.add_older({4}, stored("pipo: 1\n"))


def test_a_new_version_in_force_leaves_the_older_plan_alone() -> None:
    made = plans()
    first = made.put_in_force(edition_of(pipeline_of(PLAIN), 1))
    second = made.put_in_force(edition_of(pipeline_of(PLAIN + "concurrency: 9\n"), 2))
    assert made.of(1) is first
    assert made.current() is second


def test_a_version_that_was_only_prepared_is_not_in_force() -> None:
    made = plans()
    first = made.put_in_force(edition_of(pipeline_of(PLAIN), 1))
    made.prepare(edition_of(pipeline_of(PLAIN), 2))
    assert made.current() is first
    made.forget(2)
    with pytest.raises(KeyError):
        made.of(2)
