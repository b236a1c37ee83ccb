"""The main job, ten times as long; `make soak` runs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.load.http_posts import post
from tests.load.ledger import Ledger, read
from tests.stack import Stack, query
from tests.system.test_main_job import CHECKED, SIGNUPS

COUNT = 100_000
# Half of what a pipeline holds pending by default: no sign-up is turned away.
ROUND = 5_000


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_sign_ups_are_seen_in_their_table(stack: Stack, tmp_path: Path) -> None:
    stack.start(stack.write("signups-to-sqlite.pipo", SIGNUPS + CHECKED))
    ledger = Ledger(tmp_path / "ledger")
    path = "/in/signups-to-sqlite/signups"
    for first in range(0, COUNT, ROUND):
        posts = post(ROUND, port=stack.port, path=path, first=first, ledger=ledger)
        assert asyncio.run(posts).statuses == {202: ROUND}
        stats = stack.settle("signups-to-sqlite", deadline_s=120)
    ledger.close()
    assert (stats["accepted"], stats["delivered"], stats["dead_lettered"]) == (COUNT, COUNT, 0)
    rows = query(stack.workspace / "data/signups.db", "SELECT n, packet_id FROM signups")
    assert sorted(row[0] for row in rows) == list(range(COUNT))
    assert {str(row[0]) for row in rows} == set(read(tmp_path / "ledger"))
    assert len({row[1] for row in rows}) == COUNT
