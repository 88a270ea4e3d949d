"""What differs between two definitions of a tool: its members, and the arguments in its input schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from daemon.model import Tool

MOST = 20
"""The most arguments of each sort that are named: an event is read as a line."""


def differing(before: Tool, after: Tool) -> dict[str, list[str]]:
    """What differs, each where there is something: `members`, and of the input schema the names of arguments.

    `argumentsCame`, `argumentsWent`, `argumentsChanged`; `argumentsRequired` have become so, new ones included.
    """
    members = [
        name
        for name in {**before.parts, **after.parts}
        if (had := before.parts.get(name)) != (has := after.parts.get(name)) and _value(had) != _value(has)
    ]
    found = {"members": members}
    if "inputSchema" in members:
        had_arguments, had_required = _arguments(before)
        arguments, required = _arguments(after)
        found |= {
            "argumentsCame": [name for name in arguments if name not in had_arguments],
            "argumentsWent": [name for name in had_arguments if name not in arguments],
            "argumentsChanged": [
                name for name in arguments if name in had_arguments and arguments[name] != had_arguments[name]
            ],
            "argumentsRequired": [name for name in required if name not in had_required],
        }
    return {what: names[:MOST] for what, names in found.items() if names}


def _value(raw: bytes | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _arguments(tool: Tool) -> tuple[dict[str, Any], list[str]]:
    """The arguments by name, and the names of those that are required."""
    schema = _value(tool.parts.get("inputSchema"))
    if not isinstance(schema, dict):
        return {}, []
    properties, required = schema.get("properties"), schema.get("required")
    return (
        properties if isinstance(properties, dict) else {},
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else [],
    )
