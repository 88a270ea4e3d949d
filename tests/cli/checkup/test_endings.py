"""Exit statuses, signals and silences, and what is said to each."""

from __future__ import annotations

import pytest

from daemon.cli.checkup.endings import ENDINGS
from tests.cli.checkup.tables import holds_its_cases, meant

CASES = [
    ("killed by SIGKILL", "memory ran out", "killed process"),
    ("exited with status 137", "memory ran out", "killed process"),
    ("killed by SIGSEGV", "bad memory access", "coredumpctl"),
    ("exited with status 139", "bad memory access", "coredumpctl"),
    ("killed by SIGABRT", "gave up", "more memory"),
    ("exited with status 134", "gave up", "more memory"),
    ("killed by SIGILL", "instruction", "build for this processor"),
    ("killed by SIGSYS", "system call", "SystemCallFilter"),
    ("killed by SIGTERM", "told it to stop", "by itself"),
    ("exited with status 143", "told it to stop", "by itself"),
    ("killed by SIGPIPE", "no longer there", "mcpd logs git"),
    ("killed by SIGXCPU", "processor time", "LimitCPU"),
    ("killed by signal 40", "signal", "signal(7)"),
    ("exited with status 0", "stays until its stdin is closed", "--stdio"),
    ("it ended", "stays until its stdin is closed", "--stdio"),
    ("exited with status 126: found but not executable", "may not run it", "chmod +x"),
    ("exited with status 78: configuration error (EX_CONFIG)", "own configuration", "mcpd logs git"),
    ("exited with status 127", "did not find the program", "absolute path"),
    ("exited with status 2", "command line", "--help"),
    ("exited with status 125", "container", "shell"),
    ("exited with status 101", "panicked", "update"),
    ("exited with status 1", "exit status 1", "in a shell"),
    ("exited with status 20", "exit status 20", "in a shell"),
    ("no answer to initialize within 30 s", "for 30 s", "timeouts.firstInitialize"),
    ("initialize was refused: not today (-32000)", "not today", "mcpd logs git"),
    ("the peer closed the connection", "hung up", "by itself"),
    ("the connection was lost", "hung up", "by itself"),
    ("writing failed: Broken pipe", "hung up", "by itself"),
]


@pytest.mark.parametrize(("said", "happened", "helps"), CASES)
def test_an_ending_is_explained(said: str, happened: str, helps: str) -> None:
    found = meant(ENDINGS, said)
    assert happened in found.happened
    assert helps in found.helps


def test_every_row_has_its_case_and_says_whole_sentences() -> None:
    holds_its_cases(ENDINGS, [said for said, _, _ in CASES])
