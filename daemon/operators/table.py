"""The table of all operators' commands; a new command is a file and a line here (docs/operators.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.operators.allow import ALLOW
from daemon.operators.call import CALL
from daemon.operators.calls import CALLS, CANCEL
from daemon.operators.definitions import LOCATE, PROMPT, PROMPTS, READ, RESOURCES
from daemon.operators.describe import DESCRIBE
from daemon.operators.events import EVENTS
from daemon.operators.lazy import LAZY
from daemon.operators.login import LOGIN, LOGIN_ANSWER, LOGOUT
from daemon.operators.logs import LOGS
from daemon.operators.metrics import METRICS
from daemon.operators.move import MOVE
from daemon.operators.refresh import REFRESH
from daemon.operators.reload import RELOAD
from daemon.operators.restart import RESTART
from daemon.operators.search import SEARCH
from daemon.operators.sessions import SESSIONS
from daemon.operators.status import STATUS
from daemon.operators.summaries import SUMMARIES
from daemon.operators.switch import SWITCH
from daemon.operators.tokens import TOKENS
from daemon.operators.tool import TOOL
from daemon.operators.tools import TOOLS
from daemon.operators.ui import UI
from daemon.operators.unload import UNLOAD

if TYPE_CHECKING:
    from daemon.operators.base import Command

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
        READ,
        RESTART,
        RELOAD,
        SWITCH,
        REFRESH,
        SESSIONS,
        MOVE,
        ALLOW,
        UNLOAD,
        DESCRIBE,
        METRICS,
        LOGS,
        EVENTS,
        TOKENS,
        LOGIN,
        LOGIN_ANSWER,
        LOGOUT,
        LAZY,
        SUMMARIES,
        UI,
    )
}
"""All commands by the name of their JSON-RPC method."""
