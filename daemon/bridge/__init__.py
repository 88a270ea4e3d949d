"""Keeps `mcpd connect` alive across restarts of the daemon. Standard library only, for a quick start."""
