"""Failures of the transport itself, as the caller hears of them."""

from __future__ import annotations

import grpc
import pytest

from pipo.errors import Internal
from pipo.rpc.errors import Unanswered, from_rpc


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.CANCELLED, "locally cancelled"),
        # A killed process tears its calls: that is no bug of anybody's.
        (grpc.StatusCode.INTERNAL, "Internal error from Core"),
    ],
)
def test_a_call_that_the_other_side_ended(code: grpc.StatusCode, details: str) -> None:
    told = from_rpc(failed(code, details), "pipeline 'x'")
    assert isinstance(told, Unanswered)
    assert told.message == "pipeline 'x' ended the call"


def test_any_other_internal_error_is_a_bug() -> None:
    told = from_rpc(failed(grpc.StatusCode.INTERNAL, "odd"), "pipeline 'x'")
    assert isinstance(told, Internal)
    assert "this is a bug in Pipo" in told.message
