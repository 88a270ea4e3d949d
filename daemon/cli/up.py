"""`mcpd up`: import, service and install in one guided step."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
