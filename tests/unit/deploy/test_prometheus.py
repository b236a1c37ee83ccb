"""The Prometheus configuration and its alerts, judged by promtool where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
# Design §9, and what Prometheus itself adds.
SERIES = {
    "up",
    "pipo_pipeline_state",
    "pipo_pipeline_jammed",
    "pipo_checkers_attached",
    "pipo_packets_pending",
    "pipo_oldest_pending_age_seconds",
    "pipo_intake_refused_total",
    "pipo_packets_dead_lettered_total",
    "pipo_dead_letters",
    "pipo_home_free_bytes",
}


def alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_alerts_use_series_that_exist() -> None:
    used = {name for rule in alerts() for name in re.findall(r"pipo_[a-z_]+|\bup\b", rule["expr"])}
    assert used == SERIES


def test_every_alert_is_tried() -> None:
    tried = (FOLDER / "rules.test.yml").read_text()
    assert [r["alert"] for r in alerts() if f"alertname: {r['alert']}\n" not in tried] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "--syntax-only", "prometheus.yml"), ("test", "rules", "rules.test.yml")],
    ids=["config", "rules"],
)
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    done = subprocess.run(
        [promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
