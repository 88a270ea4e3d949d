"""What clients ask for, a module per family of MCP's methods."""
