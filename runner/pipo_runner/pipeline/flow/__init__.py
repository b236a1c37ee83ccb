"""What moves: units in memory, what they wait for, and where each of them ends."""
