"""The table of all operators' commands (docs/operators.md)."""

from __future__ import annotations

from typing import Any

from daemon.operators.base import Command
from daemon.operators.call_commands import CALLS, CANCEL
from daemon.operators.config_changes import DESCRIBE, LAZY, SUMMARIES
from daemon.operators.definition_commands import LOCATE, PROMPT, PROMPTS, READ, RESOURCES
from daemon.operators.event_commands import EVENTS
from daemon.operators.log_commands import LOGS
from daemon.operators.login_commands import LOGIN, LOGIN_ANSWER, LOGOUT
from daemon.operators.own_requests import CALL
from daemon.operators.sandbox_commands import LEARN, LEARNED, SANDBOX
from daemon.operators.server_changes import REFRESH, RELOAD, RESTART
from daemon.operators.session_changes import ALLOW, MOVE, UNLOAD
from daemon.operators.session_commands import SESSIONS
from daemon.operators.status_commands import AUDIT_HEADS, METRICS, STATUS
from daemon.operators.switch import SWITCH
from daemon.operators.token_commands import TOKENS, UI
from daemon.operators.tool_reports import SEARCH, TOOL, TOOLS
from daemon.operators.trust_commands import APPROVE, LOCK

COMMANDS: dict[str, Command[Any]] = {
    command.name: command
    for command in (
        STATUS,
        TOOLS,
        TOOL,
        SEARCH,
        CALL,
        CALLS,
        CANCEL,
        PROMPTS,
        PROMPT,
        RESOURCES,
        LOCATE,
        LOCK,
        READ,
        RESTART,
        RELOAD,
        SWITCH,
        REFRESH,
        APPROVE,
        SANDBOX,
        LEARN,
        LEARNED,
        SESSIONS,
        MOVE,
        ALLOW,
        UNLOAD,
        DESCRIBE,
        METRICS,
        LOGS,
        EVENTS,
        AUDIT_HEADS,
        TOKENS,
        LOGIN,
        LOGIN_ANSWER,
        LOGOUT,
        LAZY,
        SUMMARIES,
        UI,
    )
}

READING = frozenset(
    command.name
    for command in (STATUS, TOOLS, TOOL, SEARCH, CALLS, PROMPTS, RESOURCES, LOCATE, SANDBOX, SESSIONS, METRICS)
) | {LOGS.name, EVENTS.name, AUDIT_HEADS.name, CALL.name, PROMPT.name, READ.name}
"""Commands that change nothing. The audit has no record of them; of requests to servers it has one each."""
