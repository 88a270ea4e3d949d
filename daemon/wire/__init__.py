"""The data plane: bytes, frames and JSON-RPC. This package knows nothing of MCP."""
