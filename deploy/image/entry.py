"""The image's entry point: becomes the command, so that the command itself is PID 1.

The kernel drops a signal to PID 1 that has no handler yet, and a Python service takes a second
to import what it needs: a stop in that second would be lost, and the engine would kill the
service at the end of its grace. Blocked signals are kept, also across exec. So `env`, which is
there in a millisecond, starts this with both signals blocked; a service unblocks them itself
when its handlers stand (`pipo.service`), and for every other command they are unblocked here.
"""

import os
import signal
import sys

SERVICES = {"pipo-gateway", "pipo-runner", "pipo-checker"}


def is_service(command: list[str]) -> bool:
    """Whether the command is, or in the end becomes, a service."""
    return any(os.path.basename(word) in SERVICES for word in command)


def main(command: list[str]) -> int:
    """Does not return when all goes well.

    Returns: 2 without a command, 127 when it cannot be run.
    """
    if not command:
        print("entry: name a command, as in: pipo-gateway", file=sys.stderr)
        return 2
    change = signal.SIG_BLOCK if is_service(command) else signal.SIG_UNBLOCK
    signal.pthread_sigmask(change, {signal.SIGTERM, signal.SIGINT})
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"entry: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
