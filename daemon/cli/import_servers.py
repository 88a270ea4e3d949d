"""`mcpd import`: the servers that clients on this machine have."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
