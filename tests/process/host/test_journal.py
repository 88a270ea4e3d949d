"""Events in systemd's journal, as a journal hears them."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.host.logs import Journal, entry, is_journal

if TYPE_CHECKING:
    from pathlib import Path

KILLED = Event(
    kind=EventKind.ENDED,
    at=100.0,
    server="git",
    instance="git#2",
    run=3,
    text="killed\x1b[2J by SIGKILL",
    cause=Cause.KILLED,
    details={"seconds": 2.5, "retrySeconds": 1.0},
)


def fields(said: bytes) -> dict[str, str]:
    """The fields of an entry, none of which spans lines here."""
    return dict(line.split("=", 1) for line in said.decode().splitlines())


def test_an_entry_has_fields_to_look_it_up_by(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(sockets / "journal"))
        journald.settimeout(30)
        journal = Journal(str(sockets / "journal"))
        journal(KILLED)
        told = fields(journald.recv(65536))
        journal.close()

    assert told["MESSAGE"] == "git#2: ended: killed\\x1b[2J by SIGKILL after 2.5s; next start in 1.0s"
    assert (told["PRIORITY"], told["SYSLOG_IDENTIFIER"]) == ("4", "mcpd")
    assert (told["MCPD_EVENT"], told["MCPD_SERVER"], told["MCPD_INSTANCE"]) == ("ended", "git", "git#2")
    assert (told["MCPD_RUN"], told["MCPD_CAUSE"]) == ("3", "killed")
    assert json.loads(told["MCPD_DETAILS"])["seconds"] == 2.5
    assert "MCPD_SESSION" not in told


def test_nobody_forges_a_field_with_a_name_of_two_lines() -> None:
    hostile = Event(kind=EventKind.STARTED, server="git\nMCPD_CAUSE=none\nPRIORITY=0")
    told = fields(entry(hostile))
    assert "MCPD_CAUSE" not in told
    assert told["PRIORITY"] == "6"


def test_without_a_journal_and_with_a_full_one_nothing_waits(sockets: Path) -> None:
    journal = Journal(str(sockets / "journal"))
    journal(KILLED)
    assert journal.dropped == 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(sockets / "journal"))
        for _ in range(10_000):
            journal(KILLED)
    assert journal.dropped > 1
    journal.close()


def test_stderr_is_the_journals_if_systemd_says_so(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        said = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(said, stream.fileno())
        assert not is_journal({}, stream.fileno())
        assert not is_journal({"JOURNAL_STREAM": "1:2"}, stream.fileno())
