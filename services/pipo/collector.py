"""The garbage collector of a process that serves.

Thousands of live packets make each full collection long, and they hold no cycles:
reference counting frees them. So what stands after the start is left out of every
collection, and the young are looked through less often.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 50)


def calm() -> None:
    """Call it once, when everything that stays has been made.

    It does not collect first: that would touch every object of a forked process, and
    so copy every page that it shares with its parent.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
