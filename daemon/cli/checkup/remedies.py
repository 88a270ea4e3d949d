"""What happened to a server that does not run, and what helps, read from its end and its last words.

Three tables, in the order in which they are asked; in each the first row that fits decides. `reasons` knows
mcpd's own sentences that say all there is to say. Where they only say that the program ended or kept silent,
its last words on stderr (`words`) tell more; where these tell nothing, the way in which it ended (`endings`).
Standard library only: `mcpd status --json` is run by watchers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.cli.checkup.endings import ENDINGS
from daemon.cli.checkup.reasons import REASONS
from daemon.cli.checkup.rows import Remedy, search
from daemon.cli.checkup.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = 60
"""Last lines of stderr that are read: a stack trace of node's puts some 15 below the line that matters."""

AGAIN = "trying again after: "
"""What stands before the reason of a server that is being started again (`daemon.supervision.child`)."""

_OPEN = re.compile(
    r"exited with status (?!0\b)\d|killed by SIG(?:ABRT|TRAP)|no answer to initialize|initialize was refused"
    r"|the (?:peer closed the )?connection (?:was )?(?:lost|closed)|closed the connection$|writing failed"
)
"""Reasons that leave open what the program stumbled over."""


def needs_words(reason: str) -> bool:
    """Whether the last lines of its stderr can say more than this reason does."""
    return bool(_OPEN.search(reason)) and search(REASONS, [reason.removeprefix(AGAIN)], "") is None


def remedy(server: str, reason: str, stderr: Sequence[str]) -> Remedy | None:
    """What is known about a server that does not run.

    Args:
        server: its name.
        reason: as in its status.
        stderr: its last lines, oldest first.

    Returns:
        None: nothing that its reason does not say already.
    """
    ended = [reason.removeprefix(AGAIN)]
    found = search(REASONS, ended, server)
    if found is None and _OPEN.search(reason):
        found = search(WORDS, stderr[: -LINES - 1 : -1], server)
    return found or search(ENDINGS, ended, server)
