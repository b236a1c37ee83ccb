"""Text for people: pure functions from answers to lines. Nothing here asks, waits or prints."""
