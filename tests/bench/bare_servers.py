"""The least that many idle gRPC servers cost: what many idle pipelines are measured beside.

One process for each, forked from one that has imported all it needs: a `grpc.aio` server on uvloop
that serves health, and nothing else. One client holds a channel to each, as a gateway does, and
has called each once.

    python -m tests.bench.bare_servers COUNT

Prints a line once every server has answered, then waits for the end of its input.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pipo.rpc import wire


def main(count: int) -> int:
    """Serves until standard input ends; 0."""
    gc.collect()
    gc.freeze()
    read, write = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            uvloop.run(_serve(write))
            os._exit(0)
        pids.append(pid)
    os.close(write)
    ports: list[str] = []
    with open(read) as told:
        while len(ports) < count:
            ports.append(told.readline().strip())
    try:
        uvloop.run(_hold(ports, pids))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return 0


async def _serve(told: int) -> None:
    server = grpc.aio.server(options=wire.SERVER)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    os.write(told, f"{port}\n".encode())
    os.close(told)
    await server.wait_for_termination()


async def _hold(ports: list[str], pids: list[int]) -> None:
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=wire.CHANNEL) for port in ports
    ]
    for channel in channels:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    print(" ".join(map(str, pids)), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
