"""A daemon without a service manager: what it is given, and what it says before it has a log."""

from __future__ import annotations

import os

from daemon.cli.doctor import is_daemon
from daemon.processes import proc
from daemon.setup.running.starting import handed_on
from tests.process.setup.users import User, user

__all__ = ["user"]


def test_what_belongs_to_one_window_is_not_handed_on() -> None:
    environ = {
        "PATH": "/bin",
        "TOKEN": "t",
        "MCPD_SESSION": "s",
        "NOTIFY_SOCKET": "/n",
        "JOURNAL_STREAM": "1:2",
    }
    assert handed_on(environ) == {"PATH": "/bin", "TOKEN": "t"}


def test_what_the_daemon_says_before_it_has_a_log_is_told(user: User) -> None:
    user.configure({"listen": {"http": {"address": "192.0.2.1:80"}}})
    done = user.mcpd("start")
    assert done.returncode in {1, 78}
    assert "listen.http" in done.stderr or "192.0.2.1" in done.stderr


def test_the_daemon_is_listed_as_one_that_runs_and_keeps_nothing_of_who_has_it_started(user: User) -> None:
    pid = user.start()["pid"]
    words = [each for each in proc.command_line(pid) if each]
    assert words[-4:] == ["-m", "daemon", "run", "--json"]
    assert is_daemon(words)
    # Not in the group of whoever asks, whose terminal's signals would end it.
    assert os.getsid(pid) == os.getpgid(pid) == pid
