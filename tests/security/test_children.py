"""S2, S3 and S12: what a server gets of the daemon, and which of the two goes when memory is short."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from daemon.processes.children import Children
from daemon.processes.own import OOM_SCORE
from daemon.upstreams.transports.stdio import INHERITED
from tests.security.hostile import SECRETS
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.security.conftest import Watched

MANY = 500
"""Descriptors that the daemon has open, all of them such as would be inherited."""

SERVICE = {
    *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("CREDENTIALS_DIRECTORY", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY"),
}
"""What must never be handed on unasked."""


def begun(hostile: Watched) -> dict[str, Any]:
    """How the server `leaky` found itself when it was started."""
    line = eventually(lambda: hostile.record.read_text().partition("\n")[0] if hostile.record.exists() else "")
    start: dict[str, Any] = json.loads(line)
    assert start["event"] == "start"
    return start


@pytest.mark.e2e
def test_a_servers_environment_is_the_allow_list_and_what_is_configured(hostile: Watched) -> None:
    found = begun(hostile)["env"]
    configured = {"TOKEN", "FROM_OUTSIDE", "CREDENTIALS", "ODD_TOKEN", "GO_KEY", "PASSPHRASE", "N_TOKEN"}
    # The interpreter adds LC_CTYPE for itself where no locale is set.
    assert found.keys() - configured - {"LC_CTYPE"} == set(INHERITED) & hostile.environ.keys()
    assert not SERVICE & found.keys()
    assert not [name for name in found if name.startswith(("MCPD_", "LISTEN_", "WATCHDOG_", "XDG_"))]
    assert found["FROM_OUTSIDE"] == SECRETS["variable"]


@pytest.mark.e2e
def test_a_server_is_started_at_home_and_finds_nothing_of_where_the_daemon_was_started(
    hostile: Watched,
) -> None:
    """A runner takes what stands in `node_modules` of its directory, such as that of a cloned repository."""
    daemon = hostile.ask("status")["daemon"]["pid"]
    elsewhere = Path(f"/proc/{daemon}/cwd").readlink()
    assert begun(hostile)["cwd"] == hostile.environ["HOME"] != str(elsewhere)


@pytest.mark.e2e
def test_a_server_of_the_running_daemon_has_three_descriptors(hostile: Watched) -> None:
    assert begun(hostile)["fds"] == [0, 1, 2]


@pytest.mark.e2e
def test_when_memory_is_short_the_kernel_takes_a_server_before_the_daemon(hostile: Watched) -> None:
    status = hostile.ask("status")
    ours, its = (
        Path(f"/proc/{pid}/oom_score_adj")
        for pid in (status["daemon"]["pid"], status["servers"]["leaky"]["pid"])
    )
    assert int(its.read_text()) == OOM_SCORE
    # For the moment in which it starts a server the daemon has the score that this inherits.
    eventually(lambda: int(ours.read_text()) < OOM_SCORE)


async def test_with_five_hundred_descriptors_open_a_child_has_three() -> None:
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(MANY)]
    for fd in opened:
        os.set_inheritable(fd, True)
    try:
        children = Children()
        with trio.fail_after(30):
            child = await children.start("ls", ["-l", "/proc/self/fd"], {"PATH": os.environ["PATH"]}, None)
            os.close(child.stdin)
            await child.process.wait()
            await children.stop(child, eof=1, term=1)
        said = os.read(child.stdout, 1 << 20).decode()
        for fd in (child.stdout, child.stderr):
            os.close(fd)
    finally:
        for fd in opened:
            os.close(fd)
    links = [line.split()[-3:] for line in said.splitlines() if "->" in line]
    # What is left out is the directory that is being listed.
    assert [name for name, _, target in links if not target.endswith("/fd")] == ["0", "1", "2"]
