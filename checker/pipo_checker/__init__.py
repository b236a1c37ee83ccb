"""The checker: looks at destinations, read only, and reports what it saw.

    roster.py     which pipelines run; a follower for each
    follower.py   one pipeline: dials it, and again when the stream breaks
    stream.py     one stream: offers in, verdicts and heartbeats out
    verifier.py   from offer to verdict; lane.py is one place at a destination
    stalls.py     notices that a pipeline is stuck, and reports it
    rhythm.py     when to look; held.py what a look makes of a verification
    targets.py    from an offer to what a connector's checks take
    checker.py    all of it as a service; main.py the command
    staying.py    the checker that detached pipelines keep when their engine is gone

It never writes to a destination or to a journal, renders no template and knows no
connector by name: what a check means stands in `pipo.connectors`.
"""
