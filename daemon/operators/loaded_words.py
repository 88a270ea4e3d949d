"""What people are told of a loaded tool: its status and who loaded it in words, and what can be done about it.

Shared by the command line and the console. Standard library only, as `remedies` is.
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


def change_in_words(change: Mapping[str, Any], tool: str = "It") -> str:
    """What has become of a tool, and when, given what the history has of it (`tool_changes`)."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change["at"]))
    return f"{tool} was {change['what']} at {at}."


def advice(tool: Mapping[str, Any]) -> str:
    """What can be done about a loaded tool that is not valid, given what `mcpd sessions KEY` tells of it."""
    return ADVICE.get(tool["status"], "").format_map({"renamedTo": "unknown", **tool})
