"""What a client must be told to use the server: printed, never written; its configuration is the user's.

`served` finds out what there is to connect to; each client has a file beside it.
"""
