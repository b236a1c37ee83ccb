"""The image and the running stack that the compose tests share.

Skipped, with the reason, only where there is no engine; what fails with an engine fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import engine


@pytest.fixture(scope="session")
def project() -> Iterator[engine.Project]:
    """A Compose project whose image is built; nothing of it runs yet."""
    reason = engine.missing()
    if reason:
        pytest.skip(reason)
    engine.make_base_image()
    nameless_before = engine.nameless_images()
    project = engine.Project()
    try:
        project.build()
        yield project
    finally:
        project.down(nameless_before)


@pytest.fixture
def name(project: engine.Project) -> Iterator[str]:
    """The name of a container of the test's own, removed after it with its unnamed volumes."""
    name = f"{project.name}-alone"
    yield name
    engine.run("docker", "rm", "--force", "--volumes", name, check=False)


@pytest.fixture(scope="session")
def stack(project: engine.Project) -> engine.Project:
    """The project, up and healthy."""
    project.up()
    return project
