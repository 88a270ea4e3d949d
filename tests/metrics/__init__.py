"""The metrics room."""
