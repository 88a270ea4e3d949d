"""Scripts that models write, run in worker processes with limits; knows nothing about MCP."""
