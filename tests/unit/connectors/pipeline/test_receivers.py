"""Which process a hand-off goes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.connectors.pipeline.receivers import Absent, Receivers
from pipo.home import Home, registry
from tests.unit.home.test_directory import entry


async def test_a_receiver_is_where_the_registry_says_now(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.ensure()
    receivers = Receivers(home, SystemClock())
    registry.write(home, entry("left", "127.0.0.1:1"))
    assert receivers.find("left").entry.address == "127.0.0.1:1"
    # It restarts within the half second for which an answer of the registry is kept.
    registry.remove(home, "left")
    with pytest.raises(Absent, match="'left' is not running"):
        receivers.find("left")
    registry.write(home, entry("left", "127.0.0.1:2"))
    assert receivers.find("left").entry.address == "127.0.0.1:2"
    await receivers.close()
