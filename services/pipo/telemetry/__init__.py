"""What Pipo says about itself: logs, metrics, and the masking of secrets in both.

`logs` writes one line for each thing worth telling, `redaction` masks secret values,
`metrics` counts and renders for Prometheus. It never reads a home or a journal.
"""
