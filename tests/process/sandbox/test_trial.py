"""The small sandbox that is tried before a configuration asks for sandboxes."""

import errno
import os
import sys
from pathlib import Path

import pytest

from daemon.causes import Cause
from daemon.sandbox import bubblewrap, launch, policy
from daemon.supervision.lifecycle import mending
from tests.process.sandbox.test_stub import NO_NAMESPACES
from tests.security.unprivileged import DROP, PATHS, interpreter
from tests.waiting import run_to_end

TELL = """
import errno
import os
from daemon.sandbox import launch
found = launch.trial(os.environ)
print(found and found.reason.data["problem"])
"""


def told(*before: str, python: str = sys.executable) -> str:
    environ = {**os.environ, "PYTHONPATH": PATHS, "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_to_end([*before, python, "-c", TELL], env=environ)
    return (done.stdout or done.stderr).strip()


def test_sandboxes_work_here_also_for_an_ordinary_user() -> None:
    assert launch.trial(os.environ) is None
    assert told(*DROP, python=interpreter()) == "None"


def test_the_kind_of_refusal_is_that_of_a_servers_start(tmp_path: Path) -> None:
    assert told(*NO_NAMESPACES) == "limit"
    missing = launch.trial({"PATH": str(tmp_path)})
    assert missing is not None
    assert missing.reason.cause is Cause.SANDBOX_UNAVAILABLE
    assert mending(missing) == "`sudo apt install bubblewrap` (or your system's package manager)"


def test_what_bubblewrap_says_and_its_silence_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # /tmp, which is emptied, has this bubblewrap.
    monkeypatch.setattr(bubblewrap, "table", lambda: {**policy.table(), "empty": ()})
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: Can not mount proc: Operation not permitted' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    found = launch.trial({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert found is not None
    assert found.reason.data == {"error": "Can not mount proc: Operation not permitted", "problem": "proc"}
    bwrap.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(launch, "PROBE_SECONDS", 0.2)
    found = launch.trial({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert found is not None
    assert found.reason.data["error"] == "bubblewrap did not make a sandbox within 0.2 seconds"


def test_a_trial_without_room_for_its_files_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp")

    monkeypatch.setattr(launch, "TemporaryDirectory", full)
    found = launch.trial(os.environ)
    assert found is not None
    assert found.reason.data["error"] == "[Errno 28] No space left on device: '/tmp'"
