"""Turns the text of mcpd.json into a `Config` that the rest of the daemon trusts without further checks."""
