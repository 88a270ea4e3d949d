"""The cost of a call with and without mcpd: `python -m bench.calls`."""
