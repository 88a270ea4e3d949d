"""MCP requests of clients, one module for each family of methods."""
