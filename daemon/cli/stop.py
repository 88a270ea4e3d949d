"""`mcpd stop`: stops the daemon that runs in the background."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
