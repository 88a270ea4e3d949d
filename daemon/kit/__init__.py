"""Primitives that know nothing about MCP."""
