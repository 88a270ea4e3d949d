"""The table of the console's pages and actions; a new one needs a file and a line here."""

from __future__ import annotations

from daemon.console.changes import UNDO
from daemon.console.page import ConsoleAction, ConsolePage
from daemon.console.pages.activity_pages import AUDIT_PAGE, CALLS_PAGE, CANCEL_CALL, EVENTS_PAGE
from daemon.console.pages.adding_pages import ADD_PAGE, ADDING_ACTIONS
from daemon.console.pages.approval_page import APPROVALS_PAGE, APPROVE
from daemon.console.pages.savings import SAVINGS_PAGE
from daemon.console.pages.server_pages import SERVER, SERVER_ACTIONS, SERVERS
from daemon.console.pages.session_pages import SESSION_ACTIONS, SESSION_PAGE, SESSIONS_PAGE
from daemon.console.pages.settings_pages import SETTINGS_ACTIONS, SETTINGS_PAGE
from daemon.console.pages.tool_pages import (
    CALL_TOOL,
    DESCRIBE_TOOL,
    FIND_PAGE,
    SWITCH_TOOL,
    TOOL_PAGE,
    TOOLS_PAGE,
)
from daemon.console.pages.upgrade_pages import LOOK

PAGES: tuple[ConsolePage, ...] = (
    SERVERS,
    SERVER,
    TOOLS_PAGE,
    TOOL_PAGE,
    APPROVALS_PAGE,
    SESSIONS_PAGE,
    SESSION_PAGE,
    CALLS_PAGE,
    EVENTS_PAGE,
    AUDIT_PAGE,
    SAVINGS_PAGE,
    SETTINGS_PAGE,
    FIND_PAGE,
    ADD_PAGE,
)
"""All pages in the order of the navigation; `/ui` shows the first."""

ACTIONS: tuple[ConsoleAction, ...] = (
    *SERVER_ACTIONS,
    *ADDING_ACTIONS,
    LOOK,
    SWITCH_TOOL,
    CALL_TOOL,
    DESCRIBE_TOOL,
    APPROVE,
    *SESSION_ACTIONS,
    CANCEL_CALL,
    *SETTINGS_ACTIONS,
    UNDO,
)
