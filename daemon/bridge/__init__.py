"""Keeps `mcpd connect` alive across restarts of the daemon. Standard library only, for a quick start.

`loop` moves bytes, `ends` connects and writes, `sides` routes lines, `conversation` and `requests` hold the
state, and `stand_in` answers while no daemon does.
"""
