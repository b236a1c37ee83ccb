"""The image's lock files: same versions as the tests', every file held to a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUNTIME = ROOT / "deploy" / "requirements-runtime.lock"
BUILD = ROOT / "deploy" / "requirements-build.lock"
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)", re.MULTILINE)
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def pins(lock: Path) -> dict[str, str]:
    return dict(PIN.findall(lock.read_text()))


def wanted(requirements: list[str]) -> set[str]:
    return {match[0].lower() for text in requirements if (match := NAME.match(text))}


def project() -> dict[str, list[str]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {"runtime": found["project"]["dependencies"], "build": found["build-system"]["requires"]}


def test_the_image_runs_the_versions_that_are_tested() -> None:
    tested = pins(ROOT / "requirements.lock")
    assert {name: tested.get(name) for name in pins(RUNTIME)} == pins(RUNTIME)


@pytest.mark.parametrize(("lock", "group"), [(RUNTIME, "runtime"), (BUILD, "build")])
def test_every_requirement_is_locked(lock: Path, group: str) -> None:
    assert wanted(project()[group]) <= pins(lock).keys(), "run deploy/lock.sh"


def test_nothing_of_the_tests_gets_into_the_image() -> None:
    assert not {"pytest", "mypy", "ruff", "uv", "grpcio-tools"} & pins(RUNTIME).keys()


@pytest.mark.parametrize("lock", [RUNTIME, BUILD])
def test_every_pin_has_a_hash(lock: Path) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", lock.read_text())
    bare = [entry.split()[0] for entry in entries if PIN.match(entry) and "sha256:" not in entry]
    assert bare == []
