"""Pipo's shared library: what every service stands on.

`lang` reads pipelines, `journal` remembers, `connectors` touch the outside,
`home` knows the files of an installation, `rpc` speaks gRPC, `telemetry` logs
and counts. It never imports a service.
"""

__version__ = "0.1.0"
