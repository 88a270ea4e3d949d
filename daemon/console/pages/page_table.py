"""The table of the console's pages and actions; a new one needs a file and a line here."""

from __future__ import annotations

from daemon.console import changes
from daemon.console.page import ConsoleAction, ConsolePage
from daemon.console.pages import (
    activity_pages,
    adding_pages,
    approval_page,
    savings,
    server_pages,
    session_pages,
    settings_pages,
    tool_pages,
    upgrade_pages,
)

MODULES = (
    *(server_pages, tool_pages, approval_page, session_pages, adding_pages, activity_pages, savings),
    *(settings_pages, upgrade_pages, changes),
)
"""The modules of pages and actions in the order of the navigation; `/ui` shows the first page."""

_HELD = [held for module in MODULES for held in vars(module).values()]

PAGES = tuple(each for each in _HELD if isinstance(each, ConsolePage))

ACTIONS = tuple(
    each
    for held in _HELD
    for each in (held if isinstance(held, tuple) else (held,))
    if isinstance(each, ConsoleAction)
)
