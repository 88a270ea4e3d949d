"""`mcpd reload`: read the configuration again, and apply only what has changed in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.control import RemoteFault, guarded, print_answer
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse

PATIENCE = 60.0
"""Seconds to wait: servers that were removed are stopped first, and another reload may be under way."""

_DONE = {
    "added": "added",
    "removed": "removed",
    "enabled": "switched on",
    "disabled": "switched off",
    "restarted": "restarted",
    "changed": "changed",
    "sections": "applied",
}
"""The lists in the answer, each with its heading."""


def main(argv: list[str]) -> int:
    """Reload the configuration.

    Returns:
        0: it is in force; 1: refused; 2: usage; 3: the daemon is not reachable; 78: it is faulty, nothing was
        changed.
    """
    options = _parser().parse_args(argv)

    def act() -> int:
        try:
            print_answer(options, "reload", {}, in_words)
        except RemoteFault as fault:
            if not _is_of_the_file(fault):
                raise
            return _faulty(fault, as_json=options.json)
        return 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "reload",
        "Read the configuration again. Only servers whose entry has changed are touched: new ones are started,"
        " removed ones stopped, changed ones restarted. A server whose entry is faulty is `failed`; any other"
        " fault changes nothing. `mcpd check` looks for faults without a daemon; SIGHUP does the same as this,"
        ' and so does every change of the file if it says "watch": true.',
        examples=("mcpd reload", "mcpd reload --json | jq .needsRestartOfDaemon"),
        exits={
            0: "the configuration is in force",
            1: "the daemon refused: it is going down",
            EX_CONFIG: "the configuration is faulty: nothing was changed",
        },
    )
    add_json(made)
    add_control(made, PATIENCE)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What was done, in one line, and then the state of each server that was started."""
    done = [f"{word}: {', '.join(answer[key])}" for key, word in _DONE.items() if answer.get(key)]
    parts = [*(done or ["nothing has changed"]), f"unchanged: {len(answer['kept'])}"]
    if answer.get("needsRestartOfDaemon"):
        parts.append(f"needs a new start: {', '.join(answer['needsRestartOfDaemon'])}")
    states = [f"{name}: {_state(state)}" for name, state in answer["states"].items()]
    return "\n".join(visible(line) for line in ["; ".join(parts), *states])


def _state(state: dict[str, str]) -> str:
    return f"{state['state']}, {state['reason']}" if state.get("reason") else state["state"]


def _faulty(fault: RemoteFault, *, as_json: bool) -> int:
    if as_json:
        print(document(fault.data))
    else:
        print(f"mcpd: {visible(str(fault), lines=True)}", file=sys.stderr)
        print("mcpd: nothing was changed", file=sys.stderr)
    return EX_CONFIG


def _is_of_the_file(fault: RemoteFault) -> bool:
    return isinstance(fault.data, dict) and "faults" in fault.data
