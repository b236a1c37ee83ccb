"""The `.pipo` language: reading, checking and evaluating pipeline files.

It owns what a file may say and what it means. It never runs a step, opens a
destination or imports a connector: manifests come as an argument.

    load.py         YAML with places        document.py    the tree it makes
    check.py        findings and models     rules/         one module per rule group
    codes.py        every diagnostic        schema.py      what the file's blocks may hold
    model.py        a whole pipeline        expressions.py, templates.py    compile and evaluate
    durations.py, cron.py                   times
"""
