"""What docker-compose.yml promises, read from the file itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
SERVICES = ("runner", "gateway", "checker")


def test_there_are_three_services_and_two_named_volumes() -> None:
    assert set(COMPOSE["services"]) == set(SERVICES)
    assert set(COMPOSE["volumes"]) == {"home", "workspace"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_locked_down(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "${PIPO_UID:-1000}:${PIPO_GID:-1000}"
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_home_and_workspace_stand_at_the_same_path_everywhere(name: str) -> None:
    assert COMPOSE["services"][name]["volumes"] == [
        "${PIPO_HOME_MOUNT:-home}:/var/lib/pipo",
        "${PIPO_WORKSPACE_MOUNT:-workspace}:/workspace",
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_a_stop_gets_its_time_and_no_shell_stands_before_the_service(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["stop_grace_period"] == "30s"
    assert isinstance(service["command"], list)
    assert service["command"][-1] == f"pipo-{name}"
    assert "entrypoint" not in service


def test_only_the_gateway_is_published_and_only_on_loopback() -> None:
    published = {name: COMPOSE["services"][name].get("ports", []) for name in SERVICES}
    assert published == {
        "runner": [],
        "gateway": [
            "127.0.0.1:${PIPO_PORT:-8787}:${PIPO_PORT:-8787}",
            "127.0.0.1:${PIPO_GRPC_PORT:-8788}:${PIPO_GRPC_PORT:-8788}",
        ],
        "checker": [],
    }


def test_the_runner_starts_first_and_stops_last() -> None:
    assert COMPOSE["services"]["gateway"]["depends_on"] == ["runner"]
    assert COMPOSE["services"]["checker"]["depends_on"] == ["runner"]
    assert "depends_on" not in COMPOSE["services"]["runner"]


def test_the_dockerfile_suits_the_classic_builder() -> None:
    assert "--mount" not in DOCKERFILE
    assert "# syntax" not in DOCKERFILE
    assert "<<" not in DOCKERFILE


def test_the_dockerfile_names_the_base_once_and_runs_without_root() -> None:
    assert "ARG BASE_IMAGE=python:3.11-slim\n" in DOCKERFILE
    assert [line for line in DOCKERFILE.splitlines() if line.startswith("FROM")] == [
        "FROM ${BASE_IMAGE} AS build",
        "FROM ${BASE_IMAGE}",
    ]
    assert "USER 1000:1000" in DOCKERFILE


def test_the_commands_of_the_image_are_in_exec_form() -> None:
    words = ("CMD", "ENTRYPOINT")
    commands = [line.split() for line in DOCKERFILE.splitlines() if line.strip().startswith(words)]
    assert len(commands) == 3
    assert all(command[1].startswith("[") for command in commands)
