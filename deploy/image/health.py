"""The health check of every container: asks the service that is PID 1 for /healthz.

Exit status: 0 when it answers 200, 1 otherwise, with the reason on standard output, where the
engine keeps it (`docker inspect`). It imports nothing but sockets: it runs every few seconds.
"""

import os
import socket
import sys

ANSWER_TIMEOUT_S = 2.5
PORTS = {b"pipo-gateway": 8787, b"pipo-runner": 8782, b"pipo-checker": 8783}


def port_of(command_line: bytes, environ: dict[str, str]) -> int | None:
    """The HTTP port of the service whose `/proc/1/cmdline` this is; None for anything else."""
    for argument in command_line.split(b"\0"):
        name = argument.rsplit(b"/", 1)[-1]
        if name == b"pipo-gateway" and environ.get("PIPO_LISTEN", "").isdecimal():
            return int(environ["PIPO_LISTEN"])
        if name in PORTS:
            return PORTS[name]
    return None


def status_line(port: int) -> str:
    """The first line of the answer to `GET /healthz`.

    Raises: OSError, when nothing answers in time.
    """
    with socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return connection.makefile("rb").readline(200).decode("latin-1").strip()


def main() -> int:
    with open("/proc/1/cmdline", "rb") as file:
        command_line = file.read()
    port = port_of(command_line, dict(os.environ))
    if port is None:
        print(f"PID 1 is no Pipo service: {command_line!r}")
        return 1
    try:
        line = status_line(port)
    except OSError as error:
        print(f"127.0.0.1:{port}/healthz does not answer: {error}")
        return 1
    print(f"127.0.0.1:{port}/healthz: {line or 'an empty answer'}")
    return 0 if line.split(" ")[1:2] == ["200"] else 1


if __name__ == "__main__":
    sys.exit(main())
