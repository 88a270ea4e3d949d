"""`mcpd restart`: stops servers and starts them again without waiting for their backoff."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import document, json_line, visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Restart servers.

    Returns:
        0: they are being started; 1: there is no such server; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if bool(options.servers) == options.all:
        made.error("name the servers to restart, or say --all")
    return guarded(lambda: _restart(options))


def _restart(options: argparse.Namespace) -> int:
    """Restart one after the other; one that cannot be restarted keeps no other from it."""
    names = options.servers
    if options.all:
        servers = ask_with(options, "status", {})["servers"]
        names = [name for name, server in servers.items() if server["state"] != "disabled"]
    told = json_line if len(names) > 1 else document

    def one(name: str) -> int:
        answer = ask_with(options, "restart", {"server": name})
        print(told(answer) if options.json else in_words(answer), flush=True)
        return 0

    return max((guarded(partial(one, name)) for name in names), default=0)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "restart",
        "Restart servers now, one after the other. One that waits for its next try, or was given up until"
        " somebody looks (failed, needs_auth), is tried at once. Waits a few seconds for each outcome. Where"
        " clients do not share a server, all instances that run, or the INSTANCE that is named.",
        examples=(
            "mcpd restart git",
            "mcpd restart git time",
            "mcpd restart --all",
            "mcpd restart 'playwright#12'",
        ),
        exits={0: "the servers are being restarted", 1: "no such server"},
    )
    made.add_argument(
        "servers", metavar="SERVER|INSTANCE", nargs="*", help="their names, as `mcpd status` shows them"
    )
    made.add_argument("--all", action="store_true", help="every server that is switched on")
    add_json(made)
    add_control(made)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """The server's state after the restart, or that of each of its instances, in one line."""
    restarted: dict[str, Any] = answer.get("instances", {answer["server"]: answer})
    if not restarted:
        return visible(f"{answer['server']}: no instance of it runs; each is started at its first use")
    return "\n".join(visible(f"{name}: {_told(now)}") for name, now in restarted.items())


def _told(now: dict[str, Any]) -> str:
    why = f", {now['reason']}" if now.get("reason") else ""
    return f"restarted, now {now['state']}{why}" if now["state"] else "has ended meanwhile"
