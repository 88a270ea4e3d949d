"""What may keep mcpd or a server from working, for `mcpd doctor`, `mcpd check` and the start of a daemon."""
