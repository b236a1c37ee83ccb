"""Everything that Pipo talks to: one folder per connector, found through the registry.

It owns the connectors' manifests and implementations and `contract.py`, which they
all follow. It never renders a template, judges a packet's rules or writes a journal.

    contract.py   who calls what, when, and what each error causes
    registry.py   finds the folders and builds what a pipeline asks for
    schema.py     the words that manifests are written in
    formats.py    bodies and pushed texts into packets
    sqlite/       the connector to imitate
"""
