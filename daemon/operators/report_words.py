"""Puts loading on demand into words: whether it is on, a loaded tool's status, who loaded it, what helps.

Shared by the command line and the console. Standard library only, as `remedies` is: `mcpd status` loads it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


ADVICE = {
    "invalid_changed": "It counts again once it is loaded again, with the new schema.",
    "invalid_deleted": "If it comes back as it was, it counts again by itself.",
    "invalid_disabled": "Switch it on: `mcpd enable {server}/{name}`, or in the configuration.",
    "invalid_server_disabled": "Switch it on: `mcpd enable {server}`, or in the configuration.",
    "invalid_renamed": "Load it under its new name: {renamedTo}.",
}
"""What can be done about a loaded tool, by its status."""

STATUSES = {
    "valid": "can be used",
    "invalid_changed": "changed since it was loaded",
    "invalid_deleted": "its server no longer has it",
    "invalid_disabled": "switched off",
    "invalid_server_disabled": "its server is switched off",
    "invalid_renamed": "has another name now",
}
"""Statuses in words."""

SOURCES = {
    "manual": "the model",
    "auto": "a call of it",
    "policy_preload": "the profile",
}
"""Who has loaded a tool, in words."""


AWAITED = {
    "server": "its server",
    "turn": "its turn",
    "answer": "the answer",
    "client": "its client",
    "store": "the store",
}
"""What a call waits for, in words."""


RISKS = (
    "What loading on demand risks: a model overlooks a tool that it does not look for, needs a step more before"
    " its first call, and some clients' own permissions see the tool that calls, not the one that is called."
)
"""What whoever throws a switch should know."""

NAMED = 10
"""The most profiles that a line of the log names; `mcpd status --json` has all."""

_FITTING = {"auto": "what fits each client (auto)"}
"""Surfaces that are shown as more than their names."""


def switches(*, lazy: bool, surfaces: Mapping[str, str]) -> str:
    """A line that says whether lazy loading is on, and what each profile shows.

    Args:
        lazy: the configuration's switch.
        surfaces: the surface of each profile.
    """
    if not lazy:
        return "lazy loading is off: every profile lists all tools"
    shown = {name: _FITTING.get(surface, surface) for name, surface in surfaces.items()}
    told = [f"{name} shows {surface}" for name, surface in list(shown.items())[:NAMED]]
    more = [f"{len(surfaces) - NAMED} more"] if len(surfaces) > NAMED else []
    return f"lazy loading is on; by profile: {', '.join([*told, *more])}"


def session_name(report: Mapping[str, Any]) -> str:
    """The name of the session that a call or a report is of: its key, or its connection's number as `#4`."""
    number = report.get("number") if "session" not in report else report["session"]
    return str(report["key"] or ("" if number is None else f"#{number}"))


def change_in_words(change: Mapping[str, Any], tool: str = "It") -> str:
    """What has become of a tool, and when, given what the history has of it (`tool_changes`)."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change["at"]))
    return f"{tool} was {change['what']} at {at}."


def advice(tool: Mapping[str, Any]) -> str:
    """What can be done about a loaded tool that is not valid, given what `mcpd sessions KEY` tells of it."""
    return ADVICE.get(tool["status"], "").format_map({"renamedTo": "unknown", **tool})
