"""`mcpd start`: a daemon that outlives whoever has it started, and what is said if there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.process.setup.users import FAULTY, User, user
from tests.unit.host.test_private_files import place

__all__ = ["user"]


def test_it_runs_apart_from_who_started_it(user: User) -> None:
    first = user.start()
    pid = first["pid"]
    assert first == {
        "how": "detached",
        "started": True,
        "pid": pid,
        "socket": str(user.front),
        "log": "mcpd logs --daemon",
    }
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == user.home
    held = {Path(f"/proc/{pid}/fd/{number}").readlink() for number in (0, 1, 2)}
    assert held == {Path("/dev/null"), user.log}
    assert user.log.stat().st_mode & 0o777 == 0o600
    assert user.start() == {**first, "how": "other", "started": False}


def test_options_name_another_place(user: User, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({}))
    # Relative to where the command is given, which is not where the daemon works.
    named = ("--config", "own.json", "--socket", f"{user.home}/own.sock", "--state-dir", "state")
    done = user.mcpd("start", *named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "state" / "daemon.log").exists()
    assert not user.front.exists()
    assert user.mcpd("stop", "--socket", f"{user.home}/own.sock").returncode == 0


def test_a_faulty_configuration_is_78_with_its_faults(user: User) -> None:
    user.configure(FAULTY)
    done = user.mcpd("start")
    assert (done.returncode, done.stdout) == (78, "")
    assert "$.limits.starts" in done.stderr
    user.configure({"mcpServers": {"one": {"command": "x", "\x1b[31m": 1}}})
    assert "\x1b" not in user.mcpd("start").stderr


@pytest.mark.parametrize(
    ("name", "kind"), [("mcpd.sock.lock", "link"), ("mcpd.sock.start", "pipe"), ("daemon.log", "directory")]
)
def test_what_is_no_file_is_named_in_the_place_of_one_of_ours(user: User, name: str, kind: str) -> None:
    path = user.log if name == "daemon.log" else user.front.with_name(name)
    path.parent.mkdir(mode=0o700, parents=True)
    place(path, kind)
    done = user.mcpd("start")
    assert (done.returncode, f"{path} is no regular file: remove it" in done.stderr) == (1, True)
    assert not path.with_name("else").exists()
