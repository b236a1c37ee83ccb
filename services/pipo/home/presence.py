"""A service's own place in the registry: its lease, then its entry; withdrawn together."""

from __future__ import annotations

from pipo.clock import Clock
from pipo.home import registry
from pipo.home.leases import Lease
from pipo.home.paths import Home
from pipo.home.registry import ServiceEntry


class Presence:
    """An announced service. The lease is taken first, so an entry without one is dead."""

    def __init__(self, home: Home, entry: ServiceEntry, lease: Lease) -> None:
        self.entry = entry
        self._home = home
        self._lease = lease

    @classmethod
    def announce(cls, home: Home, entry: ServiceEntry, *, clock: Clock) -> Presence:
        """The service stands in the registry; entries of dead ones are swept away.

        Blocks up to 2 s. Raises: Conflict, if a live service has the same kind and id.
        """
        path = registry.service_lease(home, entry.kind, entry.id)
        lease = Lease.acquire(path, clock=clock)
        registry.write_service(home, entry)
        for found in registry.service_entries(home):
            _sweep(home, found, clock)
        return cls(home, entry, lease)

    def withdraw(self) -> None:
        """Entry and lease are gone; safe twice."""
        registry.remove_service(self._home, self.entry.kind, self.entry.id)
        self._lease.release()


def _sweep(home: Home, found: ServiceEntry, clock: Clock) -> None:
    """Removes a dead service's entry, under its lease: one that starts again waits."""
    held = Lease.try_acquire(registry.service_lease(home, found.kind, found.id), clock=clock)
    if held is not None:
        registry.remove_service(home, found.kind, found.id)
        held.release()
