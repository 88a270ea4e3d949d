"""Commands for sessions: list them, change a profile, allow a tool, unload one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from daemon.cli.command import UsageError, asking, drawn, show
from daemon.cli.control import EX_FAULT, ask_with
from daemon.operators.change_reports import allowed, moved, unloaded

if TYPE_CHECKING:
    import argparse

_move = asking("move", "key profile", moved)


def sessions(options: argparse.Namespace) -> int:
    """Show all sessions or one, or move one to another profile."""
    if options.profile is not None and options.key is None:
        raise UsageError("--profile changes a session's profile: name the session, too")
    return _show(options) if options.profile is None else _move(options)


def _show(options: argparse.Namespace) -> int:
    answer = ask_with(options, "sessions", {"key": options.key})
    data, view = (answer, "render_sessions") if options.key is None else (answer["loaded"], "render_session")
    show(options, data, lambda _data: drawn(f"daemon.cli.views:{view}", now=time.time())(answer))
    return EX_FAULT if answer.get("incomplete") else 0


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    if options.seconds is not None and (options.revoke or options.tool is None):
        raise UsageError("--for limits the permission for a tool: name the tool, without --revoke")
    params = {"session": options.session, "tool": options.tool, "seconds": options.seconds}
    return {**params, "revoke": options.revoke}


allow = asking("allow", _wanted, allowed)
unload = asking("unload", "session tool", unloaded)
