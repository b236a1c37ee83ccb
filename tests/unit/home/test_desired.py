"""What should run, over crashes and cut files."""

from pathlib import Path

import pytest

from pipo.home import Home, PipelineHome, desired
from pipo.home.desired import Desired

RUNNING = Desired("running", "/w/a.pipo", {"ttl": "8h"}, (1, 2), "backoff", "exit 1", "boom")


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineHome:
    return Home(tmp_path).pipeline("a")


def test_what_is_written_is_read(pipeline: PipelineHome) -> None:
    assert desired.read(pipeline) is None
    desired.write(pipeline, RUNNING)
    assert desired.read(pipeline) == RUNNING


@pytest.mark.parametrize("content", ["", '{"desired": "run', '{"desired": "maybe"}', "[]"])
def test_a_cut_file_is_rebuilt_from_its_copy(pipeline: PipelineHome, content: str) -> None:
    desired.write(pipeline, RUNNING)
    pipeline.desired.write_text(content)
    assert desired.read(pipeline) == RUNNING


@pytest.mark.parametrize(
    "wrong",
    [
        '"file": 7',
        '"file": "/x", "restart_times": [1e400]',
        f'"file": "/x", "restart_times": [{10**30}]',
        '"file": "/x", "options": {"listen": "abc"}',
        '"file": "/x", "options": {"ttl": 5}',
        '"file": "/x", "state": 7',
    ],
)
def test_a_wrong_field_is_no_better_than_a_cut_file(pipeline: PipelineHome, wrong: str) -> None:
    desired.write(pipeline, RUNNING)
    pipeline.desired.write_text(f'{{"desired": "running", {wrong}}}')
    assert desired.read(pipeline) == RUNNING


def test_both_cut_is_nothing(pipeline: PipelineHome) -> None:
    desired.write(pipeline, RUNNING)
    for path in pipeline.folder.iterdir():
        path.write_text("{")
    assert desired.read(pipeline) is None
