"""`mcpd enable`: switch a server, or what it lists, on again; `mcpd disable` shares its code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_and_print
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Switch a server, or what it lists, on.

    Returns:
        0: it is on, perhaps already; 1: there is no such one, or the configuration switches it off; 2: usage;
        3: the daemon is not reachable.
    """
    return switch(_parser().parse_args(argv), off=False)


def _parser() -> argparse.ArgumentParser:
    return switch_parser(
        "enable",
        "Switch a server, or one of its tools, prompts, resources or templates, on again that was switched off"
        " with `mcpd disable`. What the configuration switches off is switched on there. Waits a few seconds"
        " for the outcome.",
        examples=("mcpd enable git", "mcpd enable git/git_push", "mcpd enable git/prompt:review"),
    )


def switch_parser(command: str, description: str, *, examples: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser of `mcpd enable` and `mcpd disable`."""
    word = "off" if command == "disable" else "on"
    exits = {
        0: f"it is switched {word}, also if it was already",
        1: "nothing has that name, or it is the configuration that switches it off",
    }
    made = parser(command, description, examples=examples, exits=exits)
    made.add_argument(
        "name",
        metavar="SERVER[/TOOL]",
        help="a server's name in mcpServers; or what it lists: SERVER/TOOL, SERVER/prompt:NAME,"
        " SERVER/resource:URI, SERVER/template:TEMPLATE; a tool whose own name begins as one of these is"
        " SERVER/tool:NAME",
    )
    add_json(made)
    add_control(made)
    return made


def switch(options: argparse.Namespace, *, off: bool) -> int:
    """Run `mcpd enable` or `mcpd disable`. Returns 0, 1, 2 or 3: see `main`."""
    return ask_and_print(options, "switch", {"name": options.name, "off": off}, in_words)


def in_words(answer: dict[str, Any]) -> str:
    """The outcome in one line."""
    server, tool = answer["server"], answer.get("tool")
    word = "off" if answer["off"] else "on"
    name = f"{server}/{tool}" if tool else server
    said = f"{name}: was switched {word} already" if answer["already"] else f"{name}: switched {word}"
    if not tool and answer.get("state"):
        said += f", now {answer['state']}"
        if not answer["off"] and answer.get("reason"):
            said += f" ({answer['reason']})"
    return visible(f"{said}; {answer['note']}" if answer.get("note") else said)
