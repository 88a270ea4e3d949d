"""Asking before something is changed, once, of whoever sits at the terminal."""

from __future__ import annotations

import sys

_YES = frozenset({"", "y", "yes"})


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees; without a terminal nobody is asked, which is said, and nobody agrees.

    Args:
        question: a question that Enter answers with yes.
        yes: whether the user has agreed on the command line (`--yes`).
    """
    if yes:
        return True
    if not has_terminal():
        print("mcpd: there is no terminal to ask in: --yes agrees", file=sys.stderr)
        return False
    print(f"{question} [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    # Without a line there is no answer: the terminal is gone.
    return bool(answer) and answer.strip().lower() in _YES
