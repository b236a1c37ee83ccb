"""How packets come in: over HTTP, pushed, or handed over; on disk before any answer."""
