"""`mcpd cancel`: ends a call that has no answer yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_and_print
from daemon.cli.options import add_control, add_json, count, parser
from daemon.kit.wording import called, span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Cancel a call.

    Returns:
        0: cancelled; 1: no such call is in flight; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return ask_and_print(options, "cancel", {"id": options.call}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "cancel",
        "End a call that has no answer yet. Its server is told, and may go on all the same; its client gets an"
        " error that says that an operator has cancelled it, and whether it was sent. It is never sent again.",
        examples=("mcpd calls", "mcpd cancel 17"),
        exits={0: "cancelled", 1: "no such call is in flight: it has ended, or there never was one"},
    )
    made.add_argument("call", metavar="CALL", type=count, help="its number, as `mcpd calls` shows it")
    add_json(made)
    add_control(made)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What became of the call, in one line."""
    call = answer["call"]
    what = f"{called(call)} of {call['client'] or 'a client without a name'}"
    sent = "it was sent, and may have run" if call["sent"] else "it was not sent"
    return visible(f"cancelled after {span(call['ageSeconds'])}: {what}; {sent}")
