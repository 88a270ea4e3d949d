"""Primitives that know nothing of MCP: mailboxes, watches, lazy imports, latest entries, delays, wording."""
