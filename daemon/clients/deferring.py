"""Clients that keep tools from their models until they are searched for, whatever they are given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SINCE: Mapping[str, tuple[int, ...]] = {
    # The first that was seen to: names, and schemas through its ToolSearch. 2.1.197 gives its model everything.
    "claude-code": (2, 1, 329),
    # All that were seen do, with a `tool_search` of their own; the switch for it is gone (0.169).
    "codex": (),
}
"""By the beginning of the name that a client gives itself, the first version that does."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def defers_tools(name: str, version: str) -> bool:
    """Whether a client shows its model only those tools that it has searched for.

    Args:
        name: what it calls itself: `claude-code`, `codex-mcp-client`.
        version: likewise. One that cannot be read may be any: nothing is claimed to be saved then.
    """
    found = _NUMBERS.match(version)
    given = None if found is None else tuple(int(number[:9]) for number in found[0].split("."))
    return any(
        (name == known or name.startswith(f"{known}-")) and (given is None or given >= since)
        for known, since in SINCE.items()
    )
