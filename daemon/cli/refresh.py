"""`mcpd refresh`: have servers list their tools now, and say what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, guarded, print_answer
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

PATIENCE = 60.0
"""Seconds to wait: a server may take `timeouts.list` to answer, and a dormant one is started first."""


def main(argv: list[str]) -> int:
    """Refresh one server, or all that are up.

    Returns:
        0: listed; 1: no such server, or one did not list; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)

    def act() -> int:
        answer = print_answer(options, "refresh", {"server": options.server}, in_words)
        return EX_FAULT if any(told["problem"] for told in answer["servers"].values()) else 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "refresh",
        "Have a server list what it offers now instead of when it says that it changed, or in its time"
        " (timeouts.refresh). Shows its epoch, and what came, went or changed. One that sleeps is"
        " woken. Without SERVER: all that are up. Where clients do not share a server: all instances that run,"
        " or the INSTANCE that is named.",
        examples=("mcpd refresh git", "mcpd refresh"),
        exits={0: "listed", 1: "no such server, or one could not be listed"},
    )
    made.add_argument("server", metavar="SERVER|INSTANCE", nargs="?", help="its name, as `mcpd status` has it")
    add_json(made)
    add_control(made, PATIENCE)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """The outcome, in one line for each server."""
    lines = [f"{name}: {_told(told)}" for name, told in answer["servers"].items()]
    return "\n".join(map(visible, lines or ["no server is up"]))


def _told(told: dict[str, Any]) -> str:
    if told["problem"]:
        return str(told["problem"])
    renamed = dict(told["renamed"])
    news = {
        "came": [name for name in told["came"] if name not in renamed.values()],
        "went": [name for name in told["went"] if name not in renamed],
        "changed": told["changed"],
        "renamed": [f"{old} to {new}" for old, new in renamed.items()],
    }
    for member, changes in told["lists"].items():
        news |= {f"{member} that {what}": names for what, names in changes.items()}
    parts = [f"{what}: {', '.join(names)}" for what, names in news.items() if names]
    return f"epoch {told['epoch']}, {told['tools']} tools; {'; '.join(parts) or 'as before'}"
