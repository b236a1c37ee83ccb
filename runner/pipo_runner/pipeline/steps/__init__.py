"""How packets pass the steps: one node at a time, a commit on either side of every effect."""
