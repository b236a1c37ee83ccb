"""What follows from a pipeline process's end: plain functions over plain data.

The journal's last word decides, not the exit code: a pipeline that stopped,
completed or failed has written so, one that crashed has not. Clock readings are
passed in; nothing here waits or reads a file.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pipo.home.config import Restart


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; both None when nobody could see it, as with an adopted one."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {self.signal}"
        return "an exit that nobody saw" if self.code is None else f"exit {self.code}"

    @property
    def told(self) -> str:
        """For a person, with what is behind a SIGKILL: a process cannot tell of its own."""
        if self.signal != signal.SIGKILL:
            return str(self)
        return f"{self}: killed by somebody, or by the kernel when memory ran out"


@dataclass(frozen=True, slots=True)
class Ending:
    """The journal's last word on a run: stopped, completed or failed, and why."""

    kind: str
    reason: str


class Verdict(Enum):
    """What becomes of a pipeline whose process is gone."""

    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"
    RESUME = "resume"
    CRASHED = "crashed"
    KILLED = "killed"


SUSPENDED_BY = "shutdown"
RESTARTED_BY = "restart"
# The reasons of a stop after which it comes up again.
GOES_ON = frozenset({SUSPENDED_BY, RESTARTED_BY})


def judge(ending: Ending | None, *, stop_wanted: bool, suspending: bool) -> Verdict:
    """The verdict over an ended process.

    P1  completed                              COMPLETED  never restarted (edge 438)
    P2  failed                                 FAILED     never restarted (edge 140)
    P3  stopped, to stay so                    STOPPED
    P4  goes on, a stop is wanted              STOPPED
    P5  goes on, this host is ending           SUSPENDED
    P6  goes on, neither                       RESUME     a restart, or a signal to it alone
    P7  no word, a stop is wanted              KILLED     the host has to journal the stop (edge 440)
    P8  no word, this host is ending           SUSPENDED  the next host resumes it
    P9  no word, neither                       CRASHED
    """
    match ending:
        case Ending(kind="completed"):
            return Verdict.COMPLETED
        case Ending(kind="failed"):
            return Verdict.FAILED
        case Ending(reason=reason) if reason not in GOES_ON:
            return Verdict.STOPPED
        case Ending() if stop_wanted:
            return Verdict.STOPPED
        case None if stop_wanted:
            return Verdict.KILLED
        case _ if suspending:
            return Verdict.SUSPENDED
        case None:
            return Verdict.CRASHED
        case _:
            return Verdict.RESUME


@dataclass(frozen=True, slots=True)
class Wait:
    """Start again after `delay_s`; `restart_times` include this restart."""

    delay_s: float
    restart_times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The restarts allowed within the window are used up."""

    restart_times: tuple[int, ...]


def after_crash(
    restart_times: Sequence[int], *, now_ms: int, streak: int, settings: Restart
) -> Wait | GiveUp:
    """Whether and when a crashed pipeline starts again (edge 437).

    `streak` counts the crashes in a row before this one that came before a stable
    run. The caller adds jitter to the wait.
    """
    since = now_ms - settings.window_s * 1000
    recent = tuple(at for at in restart_times if since < at <= now_ms)
    if len(recent) >= settings.max_restarts:
        return GiveUp(recent)
    doublings = min(streak, 32)
    delay_s = min(settings.backoff_s * 2**doublings, settings.max_backoff_s)
    return Wait(delay_s, (*recent, now_ms))


def next_streak(streak: int, *, ran_s: float, settings: Restart) -> int:
    """The crashes in a row up to the one just seen, after a run of `ran_s`."""
    return 0 if ran_s >= settings.stable_s else streak


class Action(Enum):
    """What a host does about a pipeline that it does not supervise."""

    LEAVE = "leave"
    ADOPT = "adopt"
    SETTLE = "settle"
    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in the home about one pipeline.

    `known` when an entry or a desired state can be read, `wanted` when it should
    run, `entry` when a registry entry stands, `over` when its last run ended for
    good by the journal's word, `given_up` when its restarts were exhausted, `settled`
    when its state is the word of an end, `ours` when this host (or its predecessor of
    the same name) had it.
    """

    claimed_elsewhere: bool
    live: bool
    known: bool
    wanted: bool
    entry: bool
    over: bool
    given_up: bool
    settled: bool
    file_there: bool
    ours: bool


def act_on(found: Found) -> Action:
    """The action, by the first row that fits (edge 441).

    A1  another host supervises it             LEAVE
    A2  its process is alive                   ADOPT   even one that drains
    A3  nothing is known of it                 LEAVE
    A4  should not run, or is over             SETTLE where anything says that it runs, else LEAVE
    A5  its restarts are exhausted             LEAVE   until somebody starts it
    A6  its file is gone                       FAIL
    A7  else                                   RESTART

    Whether this host is the one to adopt or restart it, and when, is `placement`'s to say.
    """
    if found.claimed_elsewhere:
        return Action.LEAVE
    if found.live:
        return Action.ADOPT
    if not found.known:
        return Action.LEAVE
    if not found.wanted or found.over:
        left = found.entry or found.wanted or not found.settled
        return Action.SETTLE if left else Action.LEAVE
    if found.given_up:
        return Action.LEAVE
    if not found.file_there:
        return Action.FAIL
    return Action.RESTART
