"""The command line: a person's and a script's hands. It holds no rules."""
