"""A daemon without a service manager: what it is given, and what it says before it has a log."""

from __future__ import annotations

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
