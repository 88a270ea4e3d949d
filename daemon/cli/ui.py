"""`mcpd ui`: the console, in a browser."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from daemon.cli.control import ask_with, guarded
from daemon.cli.options import add_control, parser
from daemon.kit.wording import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables of which one is set where a browser can show something."""


def main(argv: list[str]) -> int:
    """Open the console, or print the link to it.

    Returns:
        0: done; 1: the console is switched off; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.end and (options.print or options.read_only):
        made.error("--end goes alone")

    def act() -> int:
        answer = ask_with(options, "ui", {"readOnly": options.read_only, "end": options.end})
        if options.end:
            print(f"ended {counted(answer['ended'], 'session')} of the console")
        elif options.print or not _opened(answer["link"], os.environ):
            print("mcpd: the link is valid for a minute, for one browser:", file=sys.stderr)
            print(answer["link"])
        return 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "ui",
        "Open the console in a browser: servers, tools, sessions, calls, events, savings, settings. A link lets"
        " one browser in, once, within a minute; the session ends after twelve hours without use, and with the"
        " daemon. Where HTTP is not served, the daemon opens a port for it on 127.0.0.1 now.",
        examples=("mcpd ui", "mcpd ui --print", "mcpd ui --read-only --print", "mcpd ui --end"),
        exits={0: "done", 1: "the console is switched off"},
    )
    made.add_argument(
        "--print", action="store_true", help="print the link, alone on the last line, and open nothing"
    )
    made.add_argument("--read-only", action="store_true", help="a link for somebody who is to change nothing")
    made.add_argument("--end", action="store_true", help="end all sessions of browsers, and open nothing")
    add_control(made)
    return made


def _opened(link: str, environ: Mapping[str, str]) -> bool:
    """Open a link in the browser; returns whether there is one."""
    if not any(environ.get(each) for each in DISPLAYS):
        print("mcpd: there is no display here: open this link in a browser on this machine", file=sys.stderr)
        return False
    import webbrowser  # noqa: PLC0415 - 20 ms, needed only here

    if not webbrowser.open(link):
        print("mcpd: no browser was found: open this link in one on this machine", file=sys.stderr)
        return False
    print("opened in the browser")
    return True
