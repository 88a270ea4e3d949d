"""Sandboxed servers of a real daemon: they keep their data, and nothing starts without its sandbox."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.e2e.harness import running, scripted
from tests.waiting import eventually


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


def test_without_bubblewrap_a_server_waits_and_starts_at_once_when_told_to(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    bubblewrap, nsenter = shutil.which("bwrap"), shutil.which("nsenter")
    assert bubblewrap
    assert nsenter
    (programs / "nsenter").symlink_to(nsenter)
    environ = {"HOME": str(tmp_path), "PATH": str(programs)}
    with running({"mcpServers": {"s": {**scripted(), "sandbox": "home"}}}, environ) as daemon:
        told = eventually(lambda: (it := daemon.ask("status")["servers"]["s"])["cause"] and it, daemon.said)
        assert (told["cause"], told["causeData"]["problem"]) == ("sandbox-unavailable", "bwrap")
        assert (told["pid"], told["pids"]) == (None, [])
        assert "apt install bubblewrap" in told["helps"]
        assert told["waits"]
        (programs / "bwrap").symlink_to(bubblewrap)
        daemon.run("restart", "s")
        assert daemon.ready("s")["s"]["sandbox"]["mode"] == "home"
