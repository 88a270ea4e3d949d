"""mcpd, the init system for MCP servers.

This package imports nothing at its top: `mcpd connect` is started once for every window of every
agent and must be up in milliseconds, so each command pays only for what it uses.
"""

__version__ = "0.1.0"
