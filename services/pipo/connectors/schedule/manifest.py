"""schedule: a packet by the clock."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import anything, closed, duration, literal

MANIFEST = Manifest(
    name="schedule",
    summary="Makes a packet by the clock.",
    input=Role(
        closed(
            cron=literal("Five fields: minute, hour, day, month, weekday.", format="cron"),
            every=duration("The time between two packets, from the start.", least="1ms"),
            payload=anything("What the packet carries.", default={}),
            timezone=literal(
                "The IANA zone that `cron` is read in.", default="UTC", format="time-zone"
            ),
        )
    ),
)
