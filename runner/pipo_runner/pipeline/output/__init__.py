"""How packets are written: prepared, alone or in a batch, and what became of them."""
