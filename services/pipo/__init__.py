"""Pipo's shared library: what every service stands on.

`lang` reads pipelines, `journal` remembers, `connectors` touch the outside,
`functions` runs the author's code, `home` knows the files of an installation,
`rpc` speaks gRPC, `telemetry` logs and counts; `access` has the public operations,
for the gateway and the command line. It never imports a service.
"""

__version__ = "0.1.0"


class _Null:
    """What a function returns to say null, where returning nothing is an error (decision 33)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "pipo.NULL"

    def __reduce__(self) -> str:
        # A copy of it is itself.
        return "NULL"

    def __bool__(self) -> bool:
        return False


NULL = _Null()
