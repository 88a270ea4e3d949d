"""Scripts that models write, in worker processes with limits; knows nothing of MCP."""
