"""Asking before something is changed, once, of whoever sits at the terminal."""

from __future__ import annotations

import sys

_YES = frozenset({"", "y", "yes"})


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees; without a terminal nobody is asked, which is said, and nobody agrees.

    Args:
        question: a question that Enter answers with yes.
        yes: whether the user has agreed on the command line (`--yes`).
    """
    if yes:
        return True
    if not (sys.stdin and sys.stdin.isatty()):
        print("mcpd: there is no terminal to ask in: nothing was changed. --yes agrees", file=sys.stderr)
        return False
    print(f"{question} [Y/n] ", end="", flush=True)
    answer = sys.stdin.readline()
    # Without a line there is no answer: the terminal is gone.
    if answer and answer.strip().lower() in _YES:
        return True
    print("Nothing was changed.")
    return False
