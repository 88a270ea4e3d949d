"""`mcpd metrics`: the daemon's numbers, as Prometheus reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.control import ask_with, guarded
from daemon.cli.options import add_control, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Print the daemon's metrics.

    Returns:
        0: printed; 1: metrics are off; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)

    def act() -> int:
        print(visible(ask_with(options, "metrics", {})["text"], lines=True), end="")
        return 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "metrics",
        "Print the daemon's numbers in Prometheus' text format: calls, latencies, states, what loading spared"
        " and cost. docs/metrics.md says what each means. They must be switched on in the configuration.",
        examples=("mcpd metrics", "mcpd metrics | grep mcpd_server_state"),
        exits={0: "printed", 1: "metrics are off"},
    )
    add_control(made)
    return made
