"""Sandboxed servers of a real daemon: nothing survives it, and nothing starts without its sandbox."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from daemon.processes import proc
from tests.e2e.harness import Daemon, running, scripted
from tests.waiting import eventually

DEAF = scripted(ignore=["eof", "term"], spawn=[{"kind": "setsid", "ignore_term": True}])


def below(pid: int) -> set[int]:
    """The living descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := proc.read(int(entry.name))) and not process.is_dead:
            parents[process.pid] = process.parent
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if (process := proc.read(pid)) and not process.is_dead}


def pid_of(daemon: Daemon) -> int:
    assert daemon.process is not None
    return daemon.process.pid


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_with_a_killed_daemon_everything_in_its_sandboxes_ends(tmp_path: Path, mode: str) -> None:
    entry = {**DEAF, "sandbox": mode}
    with running({"mcpServers": {"deaf": entry}}, {"HOME": str(tmp_path)}) as daemon:
        daemon.ready("deaf")
        started = below(pid_of(daemon))
        # Bubblewrap, the first process inside, the server and what it started.
        assert len(started) >= 4
        assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        eventually(lambda: not alive(started))
        daemon.start()
        assert "): server deaf: pid" not in daemon.said()


def test_a_renamed_server_goes_on_with_its_data(tmp_path: Path) -> None:
    # Each start adds a letter.
    code = (
        "import os, runpy, sys; del sys.argv[0]; open(os.environ['MCPD_DATA_DIR'] + '/starts', 'a').write('x')"
    )
    entry = scripted(tools=["echo"])
    first, second, *rest = entry["args"]
    args = [first, second, "-c", f"{code}; runpy.run_path(sys.argv[0], run_name='__main__')", *rest]
    with running(
        {"mcpServers": {"old": {**entry, "args": args, "sandbox": "home"}}}, {"HOME": str(tmp_path)}
    ) as daemon:
        daemon.ready("old")
        done = daemon.outcome("rename", "old", "new", "--config", str(daemon.config))
        assert (done.returncode, "its data has moved to " in done.stderr) == (0, True), done
        (kept,) = tmp_path.rglob("starts")
        assert (kept.parent.parent.name, kept.read_text()) == ("new", "xx")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH that has nothing yet."""
    made = tmp_path / "bin"
    made.mkdir()
    return made


def unavailable(daemon: Daemon, server: str = "s") -> dict[str, Any]:
    """The status of a server whose sandbox cannot be made: no process of it is there."""

    def look() -> dict[str, Any] | None:
        told: dict[str, Any] = daemon.status()["servers"][server]
        return told if told["cause"] else None

    told = eventually(look)
    assert told["cause"] == "sandbox-unavailable"
    assert (told["pid"], told["pids"]) == (None, [])
    assert [*map(is_forker, below(pid_of(daemon)))] in ([], [True])
    return told


def is_forker(pid: int) -> bool:
    """Whether a process is the one that forks the stubs of sandboxes."""
    return b"/sandbox/stub.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_without_bubblewrap_a_server_waits_and_starts_at_once_when_told_to(
    tmp_path: Path, programs: Path
) -> None:
    bubblewrap, nsenter = shutil.which("bwrap"), shutil.which("nsenter")
    assert bubblewrap
    assert nsenter
    (programs / "nsenter").symlink_to(nsenter)
    environ = {"HOME": str(tmp_path), "PATH": str(programs)}
    with running({"mcpServers": {"s": {**scripted(), "sandbox": "home"}}}, environ) as daemon:
        told = unavailable(daemon)
        assert told["causeData"]["problem"] == "bwrap"
        assert "apt install bubblewrap" in told["helps"]
        assert told["waits"]
        (programs / "bwrap").symlink_to(bubblewrap)
        daemon.run("restart", "s")
        assert daemon.ready("s")["s"]["sandbox"]["mode"] == "home"


@pytest.mark.parametrize("mode", ["home", "strict"])
def test_a_bubblewrap_that_fails_starts_nothing(tmp_path: Path, programs: Path, mode: str) -> None:
    (programs / "bwrap").write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    (programs / "bwrap").chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with running({"mcpServers": {"s": {**scripted(), "sandbox": mode}}}, environ) as daemon:
        told = unavailable(daemon)
        assert "setting up uid map: Permission denied" in told["reason"]


def test_a_place_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    entry = {**scripted(), "sandbox": {"filesystem": {"allowRead": ["/no/such/place"]}}}
    with running({"mcpServers": {"s": entry}}, {"HOME": str(tmp_path)}) as daemon:
        told = unavailable(daemon)
        assert told["causeData"]["path"] == "/no/such/place"
        assert "/no/such/place" in told["happened"]
