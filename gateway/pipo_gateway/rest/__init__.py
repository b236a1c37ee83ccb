"""`/api`: the public operations as REST, and the gateway's own pages.

    routes.py    every route: its method, scope, fields and handler, or that it is not built yet
    router.py    finds the route; 404, 405, 415 and the doors
    fields.py    reads bodies and queries; names what is unknown, missing or mistyped
    handlers.py  request -> operation -> answer

No rule lives here: `pipo.access` has the operations, `doors` the rights.
"""
