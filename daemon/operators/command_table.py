"""The table of all operators' commands (docs/operators.md)."""

from __future__ import annotations

from typing import Any

from daemon.operators import (
    call_commands,
    config_changes,
    definition_commands,
    event_commands,
    login_commands,
    own_requests,
    sandbox_commands,
    server_changes,
    session_commands,
    status_commands,
    token_commands,
    tool_reports,
    trust_commands,
)
from daemon.operators.base import Command

MODULES = (
    *(status_commands, tool_reports, own_requests, call_commands, definition_commands, server_changes),
    *(trust_commands, sandbox_commands, session_commands, config_changes),
    *(event_commands, token_commands, login_commands),
)

COMMANDS: dict[str, Command[Any]] = {
    each.name: each for module in MODULES for each in vars(module).values() if isinstance(each, Command)
}
