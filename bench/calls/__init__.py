"""What a call costs with and without mcpd: `python -m bench.calls`."""
