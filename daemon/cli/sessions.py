"""Commands for sessions: list them, change a profile, allow a tool, unload one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from daemon.cli.command import CommandLine, UsageError, argument, asking, drawn, lines
from daemon.cli.control import ask_with
from daemon.cli.options import add_session, seconds_of
from daemon.kit.wording import span
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse

    from daemon.operators.change_reports import AllowReport, UnloadReport

EX_INCOMPLETE = 1
"""Some sessions could not be shown."""

# --- sessions ---------------------------------------------------------------------------------------------

_move = asking(
    "move",
    lambda options: {"key": options.key, "profile": options.profile},
    drawn("daemon.cli.views:render_moved"),
)


def _sessions(options: argparse.Namespace) -> int:
    if options.profile is not None and options.key is None:
        raise UsageError("--profile changes a session's profile: name the session, too")
    return _show(options) if options.profile is None else _move(options)


def _show(options: argparse.Namespace) -> int:
    answer = ask_with(options, "sessions", {"key": options.key})
    if options.json:
        print(document(answer if options.key is None else answer["loaded"]))
    else:
        of_all, of_one = "daemon.cli.views:render_sessions", "daemon.cli.views:render_session"
        print(drawn(of_all if options.key is None else of_one, now=time.time())(answer))
    return EX_INCOMPLETE if answer.get("incomplete") else 0


SESSIONS = CommandLine(
    "sessions",
    "Show the sessions, also absent ones with a key. With KEY, or the number of a connection, show its"
    " loaded tools: status, reason, who loaded each and when. Changes nothing, except that --profile gives"
    " the session another profile while its client is connected.",
    examples=(
        "mcpd sessions",
        "mcpd sessions /home/me/project",
        "mcpd sessions 4",
        "mcpd sessions KEY --profile review",
        "mcpd sessions KEY --json | jq '.[] | select(.status != \"valid\")'",
    ),
    exits={
        0: "shown, or moved to the profile",
        1: "no such session or profile, or not all sessions could be read",
    },
    arguments=(
        argument(
            "key",
            metavar="KEY",
            nargs="?",
            help="the session's key, as in `mcpd connect --session`; 4 is connection 4",
        ),
        argument(
            "--profile",
            metavar="NAME",
            help="move the session to this profile until the next move, or the daemon's end",
        ),
    ),
    run=_sessions,
)

# --- allow ------------------------------------------------------------------------------------------------


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    if options.seconds is not None and (options.revoke or options.tool is None):
        raise UsageError("--for limits the permission for a tool: name the tool, without --revoke")
    params = {"session": options.session, "tool": options.tool, "seconds": options.seconds}
    return {**params, "revoke": options.revoke}


def allowed(answer: AllowReport) -> str:
    """The session's permissions, a line each."""
    if not answer["allowed"]:
        return lines(f"session {answer['session']}: nothing is allowed beyond its profile")
    said = [f"session {answer['session']} may call, unasked:"]
    for each in answer["allowed"]:
        until = "as long as it is in use" if each["seconds"] is None else f"for {span(each['seconds'])}"
        said.append(f"  {each['tool']}  {until}, says {each['by']}")
    return lines(*said)


ALLOW = CommandLine(
    "allow",
    'Let a session call a tool without asking its user (`permissions`, "then": "ask"), for clients that'
    " cannot ask. Holds for the present definition of the tool, in this session, until the session or --for"
    " ends, or the daemon: it is kept in memory. Without SERVER/TOOL, show the session's permissions.",
    examples=(
        "mcpd allow 4",
        "mcpd allow 4 filesystem/write_file",
        "mcpd allow /home/me/project 'git/*' --for 1h",
        "mcpd allow 4 filesystem/write_file --revoke",
        "mcpd allow 4 --revoke",
    ),
    exits={0: "done", 1: "no such session, or no such tool that asks"},
    arguments=(
        add_session,
        argument(
            "tool",
            metavar="SERVER/TOOL",
            nargs="?",
            help="a tool, or a pattern as in the configuration, that fits a tool which asks",
        ),
        argument(
            "--for",
            dest="seconds",
            metavar="TIME",
            type=seconds_of,
            help="duration: 90s, 30m, 1h, 2d (default: as long as the session is in use)",
        ),
        argument("--revoke", action="store_true", help="ask again about TOOL, or about every tool"),
    ),
    run=asking("allow", _wanted, allowed),
)

# --- unload -----------------------------------------------------------------------------------------------


def unloaded(answer: UnloadReport) -> str:
    """The tools that have left the session."""
    names, session = answer["unloaded"], answer["session"]
    said = [f"session {session}: {name} is not loaded any more" for name in names]
    return lines(*(said or [f"session {session} has loaded no tools"]), *filter(None, [answer["note"]]))


UNLOAD = CommandLine(
    "unload",
    "Unload a tool, or all, from a session. Its client is notified, and a further call is answered with the"
    " way to load the tool. Holds over restarts, and for other daemons on the same store. The model may load"
    " the tool again, and a profile's preload returns when its server's tools change; `mcpd disable`"
    " prevents both.",
    examples=(
        "mcpd unload 4 git/git_push",
        "mcpd unload /home/me/project git/git_push",
        "mcpd unload /home/me/project",
    ),
    exits={0: "unloaded", 1: "no such session, or the tool is not loaded"},
    arguments=(
        add_session,
        argument(
            "tool",
            metavar="SERVER/TOOL",
            nargs="?",
            help="the tool, as in `mcpd sessions SESSION` (default: all)",
        ),
    ),
    run=asking("unload", lambda options: {"session": options.session, "tool": options.tool}, unloaded),
)
