"""`mcpd logs --daemon`: the log of a daemon in the background, also of one that has ended."""

from __future__ import annotations

from daemon.cli import EX_PIPE
from tests.process.setup.users import User, user

__all__ = ["user"]


def test_it_is_shown_whether_the_daemon_runs_or_not(user: User) -> None:
    assert "no daemon has written" in user.mcpd("logs", "--daemon").stderr
    user.start()
    assert "ready: clients connect to" in user.mcpd("logs", "--daemon").stdout
    user.mcpd("stop")
    ended = user.mcpd("logs", "--daemon", "-n", "1")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 1)
    assert user.mcpd("logs", "--daemon", "git").returncode == 2


def test_what_was_written_before_the_present_file_began_comes_first(user: User) -> None:
    user.log.parent.mkdir(parents=True)
    user.log.with_name("daemon.log.1").write_text("one\ntwo\n")
    user.log.write_text("three\x1b[2J\n")
    assert user.mcpd("logs", "--daemon", "-n", "2").stdout == "two\nthree\\x1b[2J\n"


def test_following_it_ends_with_its_reader_though_nothing_more_is_written(user: User) -> None:
    user.log.parent.mkdir(parents=True)
    user.log.write_text("one\n")
    assert user.status_without_reader("logs", "--daemon", "-f") == EX_PIPE
