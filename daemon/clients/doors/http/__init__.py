"""The HTTP door: one listener for MCP in both eras, WebSocket, metrics and health."""
