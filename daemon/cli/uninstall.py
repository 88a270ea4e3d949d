"""`mcpd uninstall`: takes mcpd out of a client's configuration."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
