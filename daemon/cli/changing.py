"""What commands that change files share: asking before that, and saying why nothing was changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from daemon.cli import EX_CONFIG
from daemon.cli.control import EX_FAULT
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable

_YES = frozenset({"", "y", "yes"})


def reported(change: Callable[[], int], advice: str = "") -> int:
    """Run a command that changes files, and return its exit status; what keeps it from doing so is said.

    Args:
        change: the command.
        advice: what helps where the configuration is faulty, or would be: the end of a sentence.
    """
    # Here, so that `--help` does not pay for attrs.
    from daemon.errors import ConfigError, McpdError  # noqa: PLC0415

    try:
        return change()
    except ConfigError as error:
        print(f"mcpd: {visible(str(error), lines=True)}\nmcpd: nothing was changed{advice}", file=sys.stderr)
        return EX_CONFIG
    except McpdError as error:
        print(f"mcpd: {visible(str(error), lines=True)}", file=sys.stderr)
        return EX_FAULT


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
