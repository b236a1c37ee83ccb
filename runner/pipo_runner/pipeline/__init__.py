"""The pipeline process: intake, steps, output, verification, settling.

It is the only writer of its journal. It never looks at a destination to verify
a write (checkers do), and knows nothing of other pipelines' insides.
"""
