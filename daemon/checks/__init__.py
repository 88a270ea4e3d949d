"""The obstacles to mcpd or to a server, for `mcpd doctor`, `mcpd check` and the start of a daemon."""
