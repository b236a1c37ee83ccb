"""What people ask for: replays, purges, reruns, resolutions, and another version."""
