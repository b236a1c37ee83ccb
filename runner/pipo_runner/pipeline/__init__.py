"""The pipeline process: intake, steps, output, verification, settling.

It is the only writer of its journal. It never looks at a destination to verify
a write (checkers do), and knows nothing of other pipelines' insides. In a packet's order:

    the run     main, process, assembly; ground, versions, plan   what it is made of and stands on
    in          http_door, pushing, handing -> admission, inbox, intake, splitting
    steps       units (the queue), executor, nodes; steps, functions; scopes, rendering
    output      writing, batching; preparing, places, outputs, doubts; results
    seen        verification, offers (the checkers); acks; downstream (for others' checkers)
    ended       policy, failures, endings, settling
    asked for   servicer -> operations, orders: dead_letters, reruns, resolving; applying; pausing
    limits      lifetime, stalling, tidying;  after a crash  recovery, resuming
    the end     ends, closing;  told of it all  measures, statistics
"""
