"""Who did not answer in time: a server, or the daemon before it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, DaemonSilent, DaemonUnreachable, RemoteFault, ask_with
from daemon.kit.wording import span

if TYPE_CHECKING:
    import argparse

LOOK_SECONDS = 10.0
"""Seconds for the daemon to say how the server is: it does so within milliseconds unless it hangs."""


def explained(
    options: argparse.Namespace, server: str, silent: DaemonSilent, seconds: float = LOOK_SECONDS
) -> DaemonUnreachable | RemoteFault:
    """The error to raise for a request to a server that had no answer in time: it says whose silence it is.

    Args:
        options: of the command line, with where the daemon listens (`options.add_control`).
        server: the server or the instance that was to answer.
        silent: what the daemon left unanswered.
        seconds: how long the daemon may take to say how the server is.
    """
    try:
        answer = ask_with(options, "status", {"server": server}, timeout=seconds)
    except DaemonSilent:
        return DaemonSilent(
            f"{silent.problem}, nor `status` within {seconds:g} s: it is the daemon that hangs",
            "Its log may say in what (`mcpd logs --daemon`); `mcpd stop` and `mcpd start` start another one.",
        )
    except DaemonUnreachable as gone:
        return DaemonUnreachable(f"{silent.problem}; now {gone.problem}")
    except RemoteFault:
        return silent
    seen = answer.get("server") or answer.get("servers", {}).get(server)
    return silent if seen is None else RemoteFault(EX_FAULT, _of_server(server, seen, options.timeout))


def _of_server(server: str, seen: dict[str, Any], seconds: float) -> str:
    """Whose silence it is in words, given how the server is; who shows them makes them safe to show."""
    facts = [f"is {seen['state']}" + (f": {seen['reason']}" if seen["reason"] else "")]
    if seen["pid"] is not None:
        facts.append(f"pid {seen['pid']}")
    pings = seen.get("pings") or {}
    if pings and not seen["reason"]:
        facts.append(f"last heard {span(time.time() - pings['lastHeardAt'], parts=1)} ago")
    return (
        f"server {server} did not answer within {seconds:g} s (--timeout); the daemon did. It"
        f" {', '.join(facts)}. The call was given up; whether it ran is unknown."
        f" `mcpd status {server}` shows more."
    )
