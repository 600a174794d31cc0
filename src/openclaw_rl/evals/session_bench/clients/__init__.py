"""How each client writes a request from its history. Owns the wire forms and nothing else."""
