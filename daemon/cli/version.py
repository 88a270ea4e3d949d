"""`mcpd version`: the versions of what matters."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
