"""Finds problems of mcpd or of servers, for `mcpd doctor`, `mcpd check` and the daemon's start."""
