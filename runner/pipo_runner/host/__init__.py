"""The runner host: starts, watches, restarts and adopts pipeline processes."""
