"""`mcpd install`: puts mcpd into a client's configuration."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
