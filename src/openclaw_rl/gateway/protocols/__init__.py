"""The protocols that clients speak, each in two files: what may be sent, and how a result is written.

A request of any of them becomes one `CompletionRequest`; any result is written from one `Completion`.
"""
