"""The system input on the machine that runs the tests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from pipo.connectors import registry
from pipo.connectors.contract import InputSpec
from pipo.payload import decode, encode
from tests.contract.connectors.intake import FakeIntake, input_context


async def test_the_real_machine_is_sampled(tmp_path: Path) -> None:
    intake = FakeIntake()
    spec = InputSpec("m", {"every": "50ms"}, "json")
    logged: list[Any] = []
    context = input_context(intake, log=lambda level, message, **keys: logged.append(keys))
    context = replace(context, folder=tmp_path)
    inputs = registry.build_inputs("system", [spec], context)
    await inputs.open()
    await inputs.open()
    await asyncio.wait_for(intake.reached.wait(), 30)
    await inputs.close()
    await inputs.close()
    sample = intake.data[0]
    assert decode(encode(sample)) == sample
    assert list(sample) == ["cpu", "memory", "disk", "battery", "network", "sampled_at"]
    assert sample["cpu"]["cores"] == psutil.cpu_count()
    assert 0 <= sample["cpu"]["percent"] <= 100
    assert 0 <= sample["memory"]["used"] <= sample["memory"]["total"]
    assert sample["memory"]["total"] == psutil.virtual_memory().total
    assert sample["disk"]["path"] == str(tmp_path)
    assert sample["disk"]["total"] == psutil.disk_usage(str(tmp_path)).total
    has_battery = getattr(psutil, "sensors_battery", lambda: None)() is not None
    assert (sample["battery"] is not None) == has_battery
    assert not [keys for keys in logged if keys["action"] == "metric_missing"]
    assert intake.arrivals[0].source == sample["sampled_at"]
