"""How Pipo's processes talk: gRPC servers, channels, errors and conversions.

    server.py       serve(): one server with health, reflection, token and error mapping
    channels.py     dial(): a channel that carries the token and a deadline on every call
    connections.py  channels to pipeline processes, greeted before their first use
    errors.py       PipoError <-> gRPC status with ErrorInfo in its details
    interceptors.py what stands between the wire and a servicer
    to_proto.py     records -> messages; from_proto.py the other way
    to_json.py      any message -> the JSON that REST and `--json` print

It knows no business rule, and `stubs/` is generated (`make proto`).
"""
