"""Reads mcpd.json into a `Config` that needs no further checks."""
