"""One MCP server as the daemon reaches it: lists, calls, events, instances, transports."""
