"""The journal: a pipeline's durable record of every unit, event and version.

The rule: *nothing outside learns of a change before `commit` returns*.

It owns `journal.db` and its tip, and all SQL on them. It never decides what happens
to a packet, opens no destination, and takes no lease (its caller holds it).

changes.py   what can happen, and which state allows it: start here
sheet.py, statements.py, writer.py   a transaction: its draft, its SQL, its thread
opening.py, tip.py, migrate.py, library.py   what is opened, refused, upgraded
recover.py, reads.py, traces.py, readonly.py   what it tells, and to whom
"""
