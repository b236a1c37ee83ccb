"""The limits and settings of every gRPC connection, client and server alike.

Packets reach 128 MiB (decision 40), parsed ones 1.4 x that; the transport's own
4 MiB default must never become Pipo's limit (R47). Streams between our own
processes keep their messages under `STREAM_MESSAGE_BYTES_MAX` all the same.
"""

from __future__ import annotations

MIB = 1024 * 1024
MESSAGE_BYTES_MAX = 192 * MIB
# Design §6: a group is cut here; `STREAM_PIECE_BYTES_MAX` leaves room for its neighbours.
STREAM_MESSAGE_BYTES_MAX = MIB
STREAM_PIECE_BYTES_MAX = 256 * 1024
# A refused pipeline's findings travel in the trailing metadata.
METADATA_BYTES_MAX = 2 * MIB

TOKEN_KEY = "authorization"
USER_AGENT = "pipo"

Options = list[tuple[str, int | str]]

COMMON: Options = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
]

SERVER: Options = [
    *COMMON,
    # Two servers on one port would share its calls in silence.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]

CHANNEL: Options = [
    *COMMON,
    ("grpc.primary_user_agent", USER_AGENT),
    # A call that failed is the caller's to repeat: only it knows whether that is safe.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # A restarted peer on the same port is a new peer: no shared backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # `min_reconnect_backoff_ms` is left alone: it bounds how long a connection may take, so that a
    # busy peer would be given up before the call's own time limit.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A frozen process is noticed after 20 s. `keepalive_timeout_ms` does less than it says: the
    # answer to a ping has a limit of its own, a minute by default.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]

# A ping wakes threads on both sides, some twenty times each until they rest again.
QUIET_CHANNEL: Options = [
    *(option for option in CHANNEL if option[0] != "grpc.keepalive_time_ms"),
    ("grpc.keepalive_time_ms", 60_000),
]


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata that carries a token; empty for an empty one."""
    return ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
