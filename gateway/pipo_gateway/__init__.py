"""The gateway: the front doors of a Pipo home, over HTTP and gRPC.

    main.py, gateway.py   the command; what it is made of, start and stop
    http_server.py        the listener; `/in/` goes to ingress/, the rest to rest/
    doors.py              who may come in: loopback, tokens, scopes
    public_rpc.py         service Pipo over gRPC; push_relay.py its push stream
    metrics.py, families.py   /metrics;  engine.py  what the gateway says of itself

It keeps nothing that a restart would lose, opens no journal for writing, and
understands no pipeline's rules.
"""
