"""The process that starts a pipeline's programs, and ends those that outlive it.

A script for an interpreter of its own (`python keeper.py`); it imports nothing of Pipo, and
starts in a few milliseconds. Descriptor 3 is the socket to its pipeline process, 4 a lease
that it holds for as long as it is there.

Idea. A program is the child of a process whose only work is to wait for it. When the socket
ends, the pipeline is gone, however it went: every program gets SIGTERM with its group, SIGKILL
two seconds later, and the lease is free only then. So no run of a step begins beside one that
an earlier process of the pipeline has left.

Groups. Each program leads a session and a process group. Its end is the end of the group:
what it leaves there is killed, before its own pid is free for another. A process that wants to
live on makes a session of its own, and is then none of ours; when it ends it is buried here,
since this process is the reaper of all that its programs leave.

Wire. SOCK_SEQPACKET, JSON. The pipeline sends `{"run": id}` with four descriptors: a memory
file with the order, and the program's standard input, output and error; and `{"end": id}`.
Answers: `{"id", "pid"}` with a pidfd, then `{"id", "code" or "signal", "timed_out"}`; or only
`{"id", "errno", "at": "cwd" or "command"}`.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import time
from typing import Any

PIPELINE_FD, LEASE_FD = 3, 4
GRACE_S = 2.0
# A process that no kill ends is waiting for a device: nobody gains by waiting for it.
KILLED_S = 1.0
PACKET_BYTES = 4096
DEFAULTS = sorted(set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
_SUBREAPER = 36


class Program:
    """One that runs: `stage` counts what was done to end it."""

    def __init__(self, id: int, pid: int, deadline: float) -> None:
        self.id = id
        self.pid = pid
        self.deadline = deadline
        self.stage = 0
        self.timed_out = False

    def end_further(self, now: float) -> None:
        """SIGTERM for the group, and SIGKILL when its time is over."""
        self.stage += 1
        signal_group(self.pid, signal.SIGTERM if self.stage == 1 else signal.SIGKILL)
        self.deadline = now + (GRACE_S if self.stage == 1 else KILLED_S)


class Keeper:
    """All programs of one pipeline process."""

    def __init__(self, pipeline: socket.socket, wake_fd: int) -> None:
        self._pipeline: socket.socket | None = pipeline
        self._wake_fd = wake_fd
        self._programs: dict[int, Program] = {}

    def serve(self) -> None:
        """Until the pipeline is gone, and after it every program."""
        poll = select.poll()
        assert self._pipeline is not None
        poll.register(self._pipeline, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        while self._pipeline is not None or self._programs:
            for fd, _ in poll.poll(self._wait_ms()):
                if fd == self._wake_fd:
                    os.read(fd, 4096)
                elif not self._heard():
                    poll.unregister(fd)
            self._bury()
            self._look_at_clocks()

    def _wait_ms(self) -> int | None:
        if not self._programs:
            return None
        nearest = min(program.deadline for program in self._programs.values())
        return min(max(0, int((nearest - time.monotonic()) * 1000) + 1), 60_000)

    # ── the pipeline ─────────────────────────────────────────────────────────

    def _heard(self) -> bool:
        """Takes one packet; False when the pipeline is gone."""
        assert self._pipeline is not None
        room = socket.CMSG_LEN(4 * array.array("i").itemsize)
        try:
            packet, extra, _, _ = self._pipeline.recvmsg(
                PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            packet, extra = b"", []
        if not packet:
            self._pipeline_gone()
            return False
        order = json.loads(packet)
        if "run" in order:
            fds = array.array("i")
            for _, _, content in extra:
                fds.frombytes(content)
            self._run(order["run"], list(fds))
        else:
            for program in self._programs.values():
                if program.id == order["end"] and program.stage == 0:
                    program.end_further(time.monotonic())
        return True

    def _pipeline_gone(self) -> None:
        assert self._pipeline is not None
        self._pipeline.close()
        self._pipeline = None
        for program in self._programs.values():
            if program.stage == 0:
                program.end_further(time.monotonic())

    def _tell(self, message: dict[str, Any], fd: int | None = None) -> None:
        if self._pipeline is None:
            return
        extra = (
            [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        )
        try:
            self._pipeline.sendmsg([json.dumps(message).encode()], extra)
        except (BrokenPipeError, ConnectionResetError):
            # The end of file follows.
            return

    # ── programs ─────────────────────────────────────────────────────────────

    def _run(self, id: int, fds: list[int]) -> None:
        order_fd, *streams = fds
        at = "command"
        try:
            with open(order_fd, "rb") as file:
                file.seek(0)
                order = json.loads(file.read())
            at = "cwd"
            os.chdir(order["cwd"])
            at = "command"
            pid = os.posix_spawn(
                order["path"],
                [arg.encode() for arg in order["argv"]],
                {**os.environb, **{k.encode(): v.encode() for k, v in order["env"].items()}},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(streams)],
                setsid=True,
                setsigmask=[],
                setsigdef=DEFAULTS,
            )
        except OSError as error:
            self._tell({"id": id, "errno": error.errno, "at": at})
            return
        finally:
            for fd in streams:
                os.close(fd)
        self._programs[pid] = Program(id, pid, time.monotonic() + order["timeout_s"])
        pidfd = os.pidfd_open(pid)
        self._tell({"id": id, "pid": pid}, pidfd)
        os.close(pidfd)

    def _bury(self) -> None:
        """Takes every end: a program's, and that of what programs left to this process."""
        while (pid := ended_child()) is not None:
            program = self._programs.pop(pid, None)
            if program is not None:
                # Not reaped yet: the number of the group is no other's.
                signal_group(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if program is not None:
                code = os.waitstatus_to_exitcode(status)
                how = {"signal": -code} if code < 0 else {"code": code}
                self._tell({"id": program.id, **how, "timed_out": program.timed_out})

    def _look_at_clocks(self) -> None:
        now = time.monotonic()
        for program in list(self._programs.values()):
            if now < program.deadline:
                continue
            if program.stage == 0:
                program.timed_out = True
            if program.stage < 2:
                program.end_further(now)
            elif self._pipeline is None:
                del self._programs[program.pid]
            else:
                program.deadline = now + KILLED_S


def signal_group(pid: int, number: signal.Signals) -> None:
    """To every member that may be signalled; none may be left."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def ended_child() -> int | None:
    """A child that has ended and is not reaped, if there is one."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def reap_what_programs_leave() -> None:
    """Orphans of the programs become children of this process, not of another that may not wait."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Serves the pipeline process that started it."""
    for fd in (PIPELINE_FD, LEASE_FD):
        os.set_inheritable(fd, False)
    os.closerange(LEASE_FD + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    with open("/proc/self/comm", "w") as comm:
        comm.write("pipo:programs")
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN: that would be inherited. Only the socket's end is its own.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    reap_what_programs_leave()
    Keeper(socket.socket(fileno=PIPELINE_FD), wake_read).serve()


if __name__ == "__main__":
    main()
