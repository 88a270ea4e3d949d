"""mcpd, the init system for MCP servers.

This package imports nothing at its top: `mcpd connect` is started once for every window of every
agent and must be up in milliseconds, so each command pays only for what it uses.
"""

__version__ = "0.1.0"

__program__ = "mcpd"
"""Whose package this is: python-daemon has one of the same name (mcpd_supervisor.py)."""
