"""The pipeline process: intake, steps, output, verification, settling.

It is the only writer of its journal. It never looks at a destination to verify
a write (checkers do), and knows nothing of other pipelines' insides. From what others
stand on to what stands on them; a package imports only those above it:

    flow         units in memory, their queue, what they wait for, and where each of them ends
    definition   the version that runs, compiled; what its templates see; what a failure leads to
    steps        one node at a time
    intake       packets in, on disk before any answer
    delivery     what checkers see, what is confirmed from outside, what settles downstream
    output       prepared, written alone or in a batch, and what became of it
    orders       what people ask for: replay, purge, rerun, resolve, another version
    life         what a run does of itself: a limit, a jam, the clean-up, its end

Beside them: `main`, `process` and `assembly` put a run together on its `ground`, `resuming` takes
up what the last one left, `servicer` is asked, `closing` ends it, `measures` tells of it all.
"""
