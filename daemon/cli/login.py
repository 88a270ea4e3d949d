"""`mcpd login`: logs in to a server that wants OAuth."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Not there yet."""
    raise NotImplementedError
