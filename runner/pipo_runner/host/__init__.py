"""The runner host: starts, watches, restarts and adopts pipeline processes.

    service.py, servicer.py   its parts and the command (main.py); service Runner over gRPC
    supervisor.py    all pipelines of the host; supervised.py  the life of one
    policy.py        what an end leads to; placement.py, adoption.py  which host takes what up
    targets.py, options.py    what a start names, and what it says beside that
    launching.py     one process, from fork to report: spawning.py, forkserver.py, child.py
    gate.py, warming.py       how many start at once, and what is loaded before the first
    insistence.py    a stop that takes too long; last_word.py, epitaph.py  what is journaled of it

It never takes a pipeline's lease, and writes to a journal only through a process of its own.
"""
