"""The public operations over a home, for whoever offers them: gateway and command line.

    operations.py   Access: every operation, over the messages of pipo.proto
    routing.py      who answers for a pipeline: its process, its journal, or a reason
    hosts.py        start and stop, through the runner hosts
    listing.py      the pipelines, as `pipo status` tells of them
    runners.py      the processes, as `pipo runners` lists them
    stopped.py      what a pipeline that does not run still tells, from its journal; its versions
                    in stopped_versions.py
    checking.py     `check` of a text;  log_tail.py  the lines of a log file

It keeps nothing but channels, opens journals read-only, and knows no HTTP.
"""

from pipo.access.operations import Access

__all__ = ["Access"]
