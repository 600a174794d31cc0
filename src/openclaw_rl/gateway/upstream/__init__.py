"""Record-only mode: another server makes the replies, and what follows them is kept."""
