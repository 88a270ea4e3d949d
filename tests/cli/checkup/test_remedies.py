"""What is said about a server that does not run: which of its reason and its last words is asked, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli.checkup.remedies import LINES, needs_words, remedy
from daemon.supervision.child import ASKED

if TYPE_CHECKING:
    from daemon.cli.checkup.rows import Remedy

FAILED = "exited with status 1"
NODE_STACK = """
node:internal/modules/cjs/loader:1148
  throw err;
  ^

Error: Cannot find module '/srv/mcp/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1145:15)
    at Module._load (node:internal/modules/cjs/loader:986:27)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.18.0
""".splitlines()


def told(reason: str, *stderr: str) -> Remedy:
    found = remedy("git", reason, stderr)
    assert found is not None, f"nothing is known about {reason!r}, {stderr!r}"
    return found


def test_a_whole_stack_trace_is_read_for_the_line_that_matters() -> None:
    assert "/srv/mcp/index.js" in told(FAILED, *NODE_STACK).happened


def test_of_two_lines_that_fit_the_same_row_the_newer_counts() -> None:
    found = told(FAILED, "Error: connect ECONNREFUSED 10.0.0.1:1", "Error: connect ECONNREFUSED 10.0.0.2:2")
    assert "10.0.0.2:2" in found.happened


def test_words_from_long_ago_are_not_read() -> None:
    assert "psycopg" not in told(FAILED, "No module named 'psycopg'", *["tick"] * LINES).happened


@pytest.mark.parametrize(
    "reason", ["killed by SIGKILL", "cannot connect to h:1: Connection refused", "it ended"]
)
def test_a_reason_that_says_enough_is_not_overruled_by_old_words(reason: str) -> None:
    assert told(reason, "ModuleNotFoundError: No module named 'x'") == told(reason)
    assert not needs_words(reason)


@pytest.mark.parametrize(
    "reason",
    [
        FAILED,
        "exited with status 78: configuration error",
        "no answer to initialize within 30 s",
        "the connection was lost",
    ],
)
def test_a_reason_that_leaves_open_why_asks_for_words(reason: str) -> None:
    assert needs_words(reason)
    assert "No module" not in told(reason).happened
    assert "psycopg" in told(reason, "No module named 'psycopg'").happened


def test_a_server_that_is_tried_again_is_explained_by_how_it_ended() -> None:
    assert told(f"trying again after: {FAILED}") == told(FAILED)
    assert told("trying again after: it ended") == told("it ended")


@pytest.mark.parametrize("reason", ["", ASKED, "switched off by an operator", "it is what it is"])
def test_nothing_is_made_up(reason: str) -> None:
    assert remedy("git", reason, ["ModuleNotFoundError: No module named 'x'"]) is None


@pytest.mark.parametrize(
    "unit", ["A", "A_", "a.", "Error: ", "npm ERR! ", "\x00", "not found: ", "cannot connect to "]
)
def test_hostile_words_are_read_in_the_end(unit: str) -> None:
    line = unit * (8192 // len(unit))
    told(FAILED, *[line] * LINES)
    remedy("git", line, [])
