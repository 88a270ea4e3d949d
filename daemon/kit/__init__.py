"""Primitives that know nothing of MCP: mailboxes, watches, lazy imports, backoff delays, wording."""
