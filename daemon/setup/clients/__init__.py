"""Imports servers from the MCP clients of this machine and installs mcpd into them."""
