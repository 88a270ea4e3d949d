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
    from collections.abc import Mapping

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
        raise UsageError("--profile says which profile a session gets: name the session, too")
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
    "Show the sessions, those with a key also while nobody is connected; with KEY, or the number of"
    " a connection, the tools that this one has loaded: whether each can still be used, why not, who loaded"
    " it and when. Changes nothing, except with --profile: that gives the session another profile while its"
    " client is connected.",
    examples=(
        "mcpd sessions",
        "mcpd sessions /home/me/project",
        "mcpd sessions 4",
        "mcpd sessions KEY --profile review",
        "mcpd sessions KEY --json | jq '.[] | select(.status != \"valid\")'",
    ),
    exits={
        0: "shown, or given the profile",
        1: "no such session or profile, or not all sessions could be read",
    },
    arguments=(
        argument(
            "key",
            metavar="KEY",
            nargs="?",
            help="the session's key, as in `mcpd connect --session`; 4 is connection 4, which need not have"
            " one",
        ),
        argument(
            "--profile",
            metavar="NAME",
            help="give the session this profile, and its surface, until it is given another or the daemon ends",
        ),
    ),
    run=_sessions,
)

# --- allow ------------------------------------------------------------------------------------------------


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    if options.seconds is not None and (options.revoke or options.tool is None):
        raise UsageError("--for says how long a tool is allowed: name the tool, without --revoke")
    params = {"session": options.session, "tool": options.tool, "seconds": options.seconds}
    return {**params, "revoke": options.revoke}


def allowed(answer: Mapping[str, Any]) -> str:
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
    'Let a session call a tool that its user is asked about (`permissions`, "then": "ask"), for clients'
    " that cannot ask. It holds for the tool as it is now, in this session, as long as the session is in"
    " use or as long as --for says, and ends with the daemon: it is kept in memory only. Without"
    " SERVER/TOOL: what the session may call.",
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
            help="a tool, or a pattern as in the configuration; it must fit a tool that asks",
        ),
        argument(
            "--for",
            dest="seconds",
            metavar="TIME",
            type=seconds_of,
            help="for so long: 90s, 30m, 1h, 2d (default: as long as the session is in use)",
        ),
        argument("--revoke", action="store_true", help="ask again about TOOL, or about everything"),
    ),
    run=asking("allow", _wanted, allowed),
)

# --- unload -----------------------------------------------------------------------------------------------


def unloaded(answer: Mapping[str, Any]) -> str:
    """The tools that have left the session."""
    names, session = answer["unloaded"], answer["session"]
    said = [f"session {session}: {name} is not loaded any more" for name in names]
    return lines(*(said or [f"session {session} has loaded no tools"]), *filter(None, [answer["note"]]))


UNLOAD = CommandLine(
    "unload",
    "Take a tool that a session has loaded away from it, or all of them: its client is told that its list"
    " of tools has changed, and a call to the tool is answered with how to load it. Remembered as what is"
    " loaded is, also by other daemons on the same store. The model may load the tool again; what its"
    " profile preloads comes back when a server's tools change. `mcpd disable` keeps it from everybody.",
    examples=(
        "mcpd unload 4 git/git_push",
        "mcpd unload /home/me/project git/git_push",
        "mcpd unload /home/me/project",
    ),
    exits={0: "unloaded", 1: "no such session, or it has not loaded that"},
    arguments=(
        add_session,
        argument(
            "tool",
            metavar="SERVER/TOOL",
            nargs="?",
            help="the tool, as `mcpd sessions SESSION` has it (default: all)",
        ),
    ),
    run=asking("unload", lambda options: {"session": options.session, "tool": options.tool}, unloaded),
)
