"""Decision 37: the texts of a pipeline that was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipo.errors import NotFound, PipoError
from pipo.home import Home
from pipo.home.sent import FILES, Sent, file_of, files_of, keep, keep_only, place_of, was_sent

ONE = Sent("p", "pipo: 1\n", {"./a.py": "x = 'ä'", "../b.json": "{}"})
WORK = Path("/nowhere")
OTHER = Sent("p", "pipo: 1 \n", ONE.files)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.pipeline("p").ensure()
    return made


def test_a_text_is_kept_as_it_was_sent_and_no_path_of_it_climbs_out(home: Home) -> None:
    pipeline = home.pipeline("p")
    keep(pipeline, ONE, WORK)
    file = file_of(pipeline, ONE)
    assert (file.name, file.read_bytes(), files_of(file)) == ("p.pipo", b"pipo: 1\n", ONE.files)
    assert sorted(path.name for path in file.parent.iterdir()) == [FILES, "p.pipo"]
    assert was_sent(home, file)
    assert not was_sent(home, home.root / "p.pipo")


def test_one_text_has_one_place(home: Home) -> None:
    pipeline = home.pipeline("p")
    places = {file_of(pipeline, sent) for sent in (ONE, OTHER, Sent("p", ONE.source))}
    assert len(places) == 3
    keep(pipeline, ONE, WORK)
    turned = dict(reversed(list(ONE.files.items())))
    keep(pipeline, Sent("p", ONE.source, turned), WORK)
    assert len(list(pipeline.sent.iterdir())) == 1


def test_only_the_last_one_stays(home: Home) -> None:
    pipeline = home.pipeline("p")
    for sent in (ONE, OTHER):
        keep(pipeline, sent, WORK)
    keep_only(pipeline, str(file_of(pipeline, OTHER)))
    assert [path.name for path in pipeline.sent.iterdir()] == [OTHER.hash]
    keep_only(pipeline, "/w/p.pipo")
    assert not pipeline.sent.exists()
    keep_only(pipeline, "/w/p.pipo")


@pytest.mark.parametrize("damage", [None, "", "[]", "{", "{}", '{"files": {}}', '{"files": 1}'])
def test_damaged_files_are_told(home: Home, damage: str | None) -> None:
    keep(home.pipeline("p"), ONE, WORK)
    file = file_of(home.pipeline("p"), ONE)
    place = file.with_name(FILES)
    place.unlink() if damage is None else place.write_text(damage)
    with pytest.raises(NotFound, match="files that were sent with p, cannot be read") as caught:
        files_of(file)
    assert caught.value.hint == "send the pipeline again"


def test_what_its_paths_mean_is_made_and_stays(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, file = home.pipeline("p"), file_of(home.pipeline("p"), ONE)
    monkeypatch.chdir(tmp_path)
    keep(pipeline, ONE, Path("work"))
    monkeypatch.chdir("/")
    assert place_of(file) == tmp_path / "work" / "p"
    assert place_of(file).is_dir()
    (tmp_path / "file").write_text("")
    keep(pipeline, ONE, tmp_path / "file")
    with pytest.raises(PipoError, match="cannot write"):
        place_of(file)
