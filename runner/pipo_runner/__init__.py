"""The runner: `host` supervises one process per pipeline, `pipeline` is that process.

It owns the journals and the writes to destinations; it never verifies what it wrote.
"""
