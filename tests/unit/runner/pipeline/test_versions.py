"""Which definition runs, and the plans of older versions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.errors import InvalidPipeline, InvalidState, NotFound
from pipo_runner.pipeline.versions import Definition, Plans, next_version, read_definition
from tests.unit.runner.pipeline.rig import AT, FOLDER, PLAIN, pipeline_of

TEXT = f"pipo: 1\nname: people\n{PLAIN}"


def read(file: Path, name: str = "people") -> Definition:
    return read_definition(file, name, registry.manifests())


def plans() -> Plans:
    def no_steps(role: str, name: str) -> Any:
        raise AssertionError(f"no step is asked for: {role} {name}")

    return Plans(registry.manifests(), FOLDER, no_steps)


def definition(text: str = TEXT) -> Definition:
    return Definition(text, FOLDER / "people.pipo", pipeline_of(PLAIN))


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
    file.write_text(TEXT + "lifetime: { max_packets: 1 }\n")
    with pytest.raises(InvalidState, match="lifetime"):
        read(file)


def test_the_first_start_makes_version_one() -> None:
    added = next_version(definition(), None, AT)
    assert added is not None
    assert (added.version, added.reason, added.source, added.at) == (1, "first start", TEXT, AT)


def test_an_unchanged_file_runs_the_newest_version() -> None:
    found = definition()
    assert next_version(found, (7, found.hash), AT) is None


def test_a_changed_file_makes_the_next_version() -> None:
    added = next_version(definition(TEXT + "# a note\n"), (7, definition().hash), AT)
    assert added is not None
    assert (added.version, added.reason) == (8, "file changed")


async def test_older_versions_run_as_they_were_journaled() -> None:
    made = plans()
    made.put_in_force(pipeline_of(PLAIN), 3)
    asked: list[int] = []

    async def source_of(version: int) -> str:
        asked.append(version)
        return TEXT + f"concurrency: {version}\n"

    await made.add_older({1, 2, 3}, source_of)
    assert asked == [1, 2]
    assert [made.of(version).pipeline.concurrency for version in (1, 2)] == [1, 2]
    assert made.current().version == 3


async def test_an_older_version_is_not_checked_against_todays_files() -> None:
    """Its paths may have moved on; the text passed its check when it was stored."""
    made = plans()
    made.put_in_force(pipeline_of(PLAIN), 2)
    older = TEXT.replace("./people.db, table: people, create: true", "./gone.db, table: gone")

    async def source_of(version: int) -> str:
        return older

    await made.add_older({1}, source_of)
    settings = made.of(1).output_settings.constant
    assert settings is not None
    assert settings["path"] == "/pipelines/gone.db"


async def test_a_version_that_the_journal_lost_refuses_the_start() -> None:
    made = plans()

    async def source_of(version: int) -> None:
        return None

    with pytest.raises(InvalidState, match="packets of v4 and no such version"):
        await made.add_older({4}, source_of)


async def test_a_stored_text_that_is_no_pipeline_names_its_version() -> None:
    made = plans()

    async def source_of(version: int) -> str:
        return "pipo: 1\n"

    with pytest.raises(InvalidPipeline, match=r"v4\.pipo"):
        await made.add_older({4}, source_of)


def test_a_new_version_in_force_leaves_the_older_plan_alone() -> None:
    made = plans()
    first = made.put_in_force(pipeline_of(PLAIN), 1)
    second = made.put_in_force(pipeline_of(PLAIN + "concurrency: 9\n"), 2)
    assert made.of(1) is first
    assert made.current() is second
