"""The journal: a pipeline's durable record of every unit, event and version.

The rule: *nothing outside learns of a change before `commit` returns*.

It owns `journal.db` and its tip, and all SQL on them. It never decides what happens
to a packet, opens no destination, and takes no lease (its caller holds it).

changes.py                       what can happen, and which state allows it: start here
states.py, families.py, interventions.py, lifecycle.py, retention.py   the rest of it
sheet.py, patches.py             a transaction's draft, and how changed data is kept
statements.py, transactions.py   its SQL, and its way to the disk
writer.py, sqlite_journal.py     its thread, and what the pipeline process holds
clean_up.py                      what age does, in passes beside everything else
opening.py, tip.py, migrate.py, library.py   what is opened, refused, upgraded
recover.py, reads.py, units.py, traces.py, endings.py, readonly.py   what it tells, and to whom
"""
