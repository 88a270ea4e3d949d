"""`mcpd logout`: ends a login and forgets it."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
