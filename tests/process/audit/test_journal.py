"""The heads in the journal, through stand-ins for `journalctl`: a test cannot write to a journal of its own."""

import subprocess
from pathlib import Path

import pytest

from daemon.audit.inspection import journal
from daemon.audit.record import ChainHead
from tests.unit.audit.chaining import CHAIN


def test_the_journal_is_asked_for_heads_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "journalctl"
    tool.write_text(f'#!/bin/sh\necho "audit head 3 {"d" * 64} of {CHAIN}"\necho "$@" >&2\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert journal(7) == ([ChainHead(chain=CHAIN, seq=3, digest="d" * 64)], "")
    tool.write_text("#!/bin/sh\nexit 3\n")
    heads, why = journal(7)
    assert (heads, "exit status 3" in why) == ([], True)


def test_a_machine_without_journalctl_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    heads, why = journal(7)
    assert (heads, "journalctl" in why) == ([], True)


def test_a_silent_journal_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_words: object, timeout: float, **_how: object) -> None:
        raise subprocess.TimeoutExpired("journalctl", timeout)

    monkeypatch.setattr(subprocess, "run", silent)
    heads, why = journal(7)
    assert (heads, "timed out" in why) == ([], True)
