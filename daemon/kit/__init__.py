"""Primitives without knowledge of MCP."""
