"""What runs: the versions of a pipeline, compiled, and what their templates and expressions see."""
