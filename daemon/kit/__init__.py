"""Primitives that know nothing of MCP: a watched value, a mailbox, lazy imports, one delay, words and units."""
