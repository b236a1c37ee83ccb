"""What a host says to a pipeline process, over gRPC."""

from __future__ import annotations

from pipo.errors import PipoError
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipeline_pb2, pipeline_pb2_grpc, pipo_pb2

_STOP_TIMEOUT_S = 10.0
_HELLO_TIMEOUT_S = 2.0


class PipelineCalls:
    """Calls with the home's internal token; a channel for each, since they are rare."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def stop(self, address: str, pipeline: str, *, now: bool) -> bool:
        """Asks it to stop; whether it was stopping already.

        Raises: PipoError, as it answers; Unavailable, if it does not.
        """
        channel = dial(address, self._token, timeout_s=_STOP_TIMEOUT_S)
        try:
            with calling(f"the pipeline {pipeline} at {address}"):
                stub = pipeline_pb2_grpc.PipelineStub(channel)
                reply = await stub.Stop(pipo_pb2.StopRequest(pipeline=pipeline, now=now))
                return bool(reply.already)
        finally:
            await channel.close()

    async def restart(self, address: str, pipeline: str) -> None:
        """Asks it to drain and end, to be brought up again.

        Raises: PipoError, as it answers; Unavailable, if it does not.
        """
        channel = dial(address, self._token, timeout_s=_STOP_TIMEOUT_S)
        try:
            with calling(f"the pipeline {pipeline} at {address}"):
                stub = pipeline_pb2_grpc.PipelineStub(channel)
                await stub.Drain(pipo_pb2.DrainRequest(pipeline=pipeline, restart=True))
        finally:
            await channel.close()

    async def answers(self, address: str, pipeline: str) -> bool:
        """Whether this very pipeline answers there."""
        channel = dial(address, self._token, timeout_s=_HELLO_TIMEOUT_S)
        try:
            with calling(pipeline):
                stub = pipeline_pb2_grpc.PipelineStub(channel)
                reply = await stub.Hello(pipeline_pb2.HelloRequest())
                return bool(reply.pipeline == pipeline)
        except PipoError:
            return False
        finally:
            await channel.close()
