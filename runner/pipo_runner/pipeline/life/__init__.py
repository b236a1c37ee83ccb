"""What a run does of itself: takes up what was left, notices a jam, tidies, comes to its end."""
