"""`mcpd stop`: the daemon ends, and that none runs is no fault."""

from __future__ import annotations

from tests.process.setup.users import User, ended, user

__all__ = ["user"]


def test_the_daemon_has_ended_when_it_returns(user: User) -> None:
    pid = user.start()["pid"]
    stopped = user.mcpd("stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"mcpd: stopped (pid {pid}).\n")
    assert ended(pid)
    again = user.mcpd("stop")
    assert (again.returncode, "no daemon runs" in again.stdout) == (0, True)


def test_whoever_names_a_server_is_told_what_stops_one(user: User) -> None:
    pid = user.start()["pid"]
    stopped = user.mcpd("stop", "git")
    assert (stopped.returncode, "`mcpd disable git`" in stopped.stderr) == (2, True)
    assert not ended(pid)
