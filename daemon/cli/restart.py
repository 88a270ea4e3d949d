"""`mcpd restart`: stop one server and start it again without waiting for its backoff."""

from __future__ import annotations

from typing import Any

from daemon.cli.control import guarded, print_answer
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import visible


def main(argv: list[str]) -> int:
    """Restart a server.

    Returns:
        0: it is being started; 1: there is no such server; 2: usage; 3: the daemon is not reachable.
    """
    made = parser(
        "restart",
        "Restart one server now. One that waits for its next try, or was given up until somebody looks"
        " (failed, needs_auth), is tried at once. Waits a few seconds for the outcome.",
        examples=("mcpd restart git",),
        exits={0: "the server is being restarted", 1: "no such server"},
    )
    made.add_argument("server", metavar="SERVER", help="its name in mcpServers")
    add_json(made)
    add_control(made)
    options = made.parse_args(argv)

    def act() -> int:
        print_answer(options, "restart", {"server": options.server}, in_words)
        return 0

    return guarded(act)


def in_words(answer: dict[str, Any]) -> str:
    """The server's state after the restart, in one line."""
    why = f", {answer['reason']}" if answer.get("reason") else ""
    return visible(f"{answer['server']}: restarted, now {answer['state']}{why}")
