"""What the status shows people of the last hours: outages that are over, and tools that have changed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from daemon.kit.wording import HOUR, counted, span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]


def lately_in_words(told: Mapping[str, Any] | None, width: int, lines: int = 2) -> list[str]:
    """What is over, in a few lines; empty if there is nothing, or an older daemon does not say.

    Args:
        told: `lately` of a `status` answer.
        width: the most characters of a line.
        lines: the most lines. What has no room is counted.
    """
    servers: Mapping[str, Json] = (told or {}).get("servers") or {}
    if told is None or not servers:
        return []
    worst_first = sorted(servers.items(), key=lambda each: -each[1]["awaySeconds"])
    hours = round(told["seconds"] / HOUR)
    parts = [_of_one(name, server) for name, server in worst_first]
    for shown in range(len(parts), -1, -1):
        left = [f"{counted(len(parts) - shown, 'server' if shown == 0 else 'other')}"] * (shown < len(parts))
        text = f"In the last {hours}h: {'; '.join([*parts[:shown], *left])}{_where(worst_first, shown, hours)}"
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False)
        if len(wrapped) <= lines:
            return wrapped
    return []


def _of_one(name: str, server: Json) -> str:
    told = []
    if times := server["outages"]:
        often = f"{times} times, " if times > 1 else ""
        told.append(f"was away {often}{span(server['awaySeconds'])}")
    changes = (("changed", server["changed"]), ("added", server["came"]), ("removed", server["went"]))
    for word, names in changes:
        if names:
            noun = counted(len(names), "tool") if "tool" not in "".join(told) else str(len(names))
            told.append(f"{word} {noun}")
    return f"{visible(name)} {', '.join(told)}"


def _where(servers: list[tuple[str, Json]], shown: int, hours: int) -> str:
    """The command that tells more."""
    if len(servers) == shown == 1:
        return f" (mcpd events {visible(servers[0][0])})"
    return f" (mcpd events --since {hours}h)"
