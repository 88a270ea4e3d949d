"""Commands for calls: show those in flight and ended ones, follow them, and cancel one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daemon.cli.command import FOLLOW, LAST, SERVER_IF_ANY, CommandLine, argument, asking, drawn, flag
from daemon.cli.control import ask_with
from daemon.cli.events import follow, news
from daemon.cli.options import count
from daemon.kit.wording import called, span
from daemon.operators.report_words import session_name
from daemon.safety.escape import json_line, visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.reports import CallInFlight, CallsReport, EndedCall

MOST = 1000
"""Most ended calls to ask for: as many as the daemon keeps."""


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    wanted = {"server": options.server, "session": options.session, "errorsOnly": options.errors}
    return wanted if options.last is None else {**wanted, "limit": min(options.last, MOST)}


def _calls(options: argparse.Namespace) -> int:
    if options.follow:
        return _follow(options)
    view = drawn("daemon.cli.views:render_calls", errors_only=options.errors)
    return asking("calls", _wanted, view)(options)


def _follow(options: argparse.Namespace) -> int:

    def after(seen: CallsReport) -> Any:
        last = {"limit": MOST, "after": seen["next"], "source": seen["source"]}
        return news(options, "calls", {**_wanted(options), **last})

    def show(answer: CallsReport) -> None:
        for call in answer["recent"]:
            print(json_line(call) if options.json else _line(call))

    return follow(ask_with(options, "calls", _wanted(options)), after, show)


def _line(call: EndedCall) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(call["at"]))
    who, session = call["client"] or "a client without a name", session_name(call)
    where = f" (session {session})" if session else ""
    return visible(f"{clock} {call['ms']:9.1f} ms  {called(call)}  {call['outcome']}  {who}{where}")


CALLS = CommandLine(
    "calls",
    arguments=(SERVER_IF_ANY, FOLLOW, flag("--errors"), argument("--session", metavar="KEY"), LAST),
    run=_calls,
)


def cancelled(answer: Mapping[str, CallInFlight]) -> str:
    """The outcome in one line."""
    call = answer["call"]
    what = f"{called(call)} of {call['client'] or 'a client without a name'}"
    sent = "it was sent, and may have run" if call["sent"] else "it was not sent"
    return visible(f"cancelled after {span(call['ageSeconds'])}: {what}; {sent}")


CANCEL = CommandLine(
    "cancel",
    arguments=(argument("call", metavar="CALL", type=count),),
    run=asking("cancel", lambda options: {"id": options.call}, cancelled),
)
