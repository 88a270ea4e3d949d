"""One daemon for one state file."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon.errors import DaemonRunning
from daemon.state.sqlite import hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def another(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds it."""
    script = (
        "import sys; from pathlib import Path; from daemon.state.sqlite import hold\n"
        "with hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.communicate(timeout=60)


def test_the_second_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with another(path) as process:
        with pytest.raises(DaemonRunning, match=f"pid {process.pid}.*{path}.*--state-dir"), hold(path):
            pass
        # Being refused did not break it.
        with pytest.raises(DaemonRunning, match=f"pid {process.pid}"), hold(path):
            pass
    with hold(path):
        assert (tmp_path / "state.db.lock").read_text() == f"{os.getpid()}\n"


def test_what_a_dead_process_left_behind_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with another(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert (tmp_path / "state.db.lock").read_text() == f"{process.pid}\n"
        with hold(path):
            pass
    (tmp_path / "state.db.lock").write_bytes(b"\xff garbage " * 100)
    with hold(path):
        assert (tmp_path / "state.db.lock").read_text() == f"{os.getpid()}\n"


def test_the_file_stays_and_is_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "state.db"
    with hold(path):
        pass
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path.parent / "state.db.lock").stat().st_mode) == 0o600


def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with hold(tmp_path / "x"):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with child:
        with hold(tmp_path / "x"):
            pass
        child.communicate(timeout=60)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is no regular file: remove it"), hold(tmp_path / "x"):
        pass
    assert not (tmp_path / "elsewhere").exists()
