"""How many bytes of bodies are in flight, and how many may be (decision 40)."""

from __future__ import annotations

# Bodies of the largest size that are held at once.
BODIES_MAX = 8


class Budget:
    """Bytes of bodies between their arrival and their answer."""

    def __init__(self, body_bytes_limit: int) -> None:
        self.body_bytes_limit = body_bytes_limit
        self._bytes_max = BODIES_MAX * body_bytes_limit
        self._held = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may come."""
        return self._held + size <= self._bytes_max

    def take(self, size: int) -> bool:
        """Counts bytes that came; False, and counted nothing, when they are too many."""
        if self._held + size > self._bytes_max:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        """The bytes are no longer held."""
        self._held -= size
        assert self._held >= 0, "more bytes given back than were taken"
