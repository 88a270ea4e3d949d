"""`mcpd restart`: stop one server and start it again without waiting for its backoff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_and_print
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Restart a server.

    Returns:
        0: it is being started; 1: there is no such server; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return ask_and_print(options, "restart", {"server": options.server}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "restart",
        "Restart one server now. One that waits for its next try, or was given up until somebody looks"
        " (failed, needs_auth), is tried at once. Waits a few seconds for the outcome. Where clients do not"
        " share a server, all instances that run, or the INSTANCE that is named.",
        examples=("mcpd restart git", "mcpd restart 'playwright#12'"),
        exits={0: "the server is being restarted", 1: "no such server"},
    )
    made.add_argument("server", metavar="SERVER|INSTANCE", help="its name, as `mcpd status` shows it")
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
