"""Bytes, frames and JSON-RPC: the data plane. Nothing in here knows MCP beyond JSON-RPC's own conventions."""
