"""The program that runs the author's functions, in a process of its own.

It imports the standard library and nothing of ours but this package, and knows nothing of
pipelines: it loads code from text, calls functions of it one at a time, and answers. It ends
with whoever started it. `python -P -m pipo.functions.helper`, see `main`.
"""
