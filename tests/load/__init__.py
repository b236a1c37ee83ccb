"""Load drivers: they send, keep a ledger of what was answered, and judge nothing."""
