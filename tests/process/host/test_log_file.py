"""The log of a daemon that nobody watches stays small, private, and has what is written to stderr."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon.host.logs import MOST_BYTES, previous
from tests.unit.cli.daemons import environment
from tests.unit.host.test_private_files import place
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

WRITES = f"""
import os, pathlib, sys
from daemon.host.logs import LogFile
log = LogFile(pathlib.Path(sys.argv[1]))
for text in ("first\\n", "x" * {MOST_BYTES} + "\\n", "second\\n"):
    log.write(text)
    log.flush()
os.write(2, b"to stderr\\n")
"""


def test_it_is_private_of_bounded_size_and_has_stderr(tmp_path: Path) -> None:
    path = tmp_path / "state" / "daemon.log"
    ran = subprocess.run([sys.executable, "-c", WRITES, path], env=environment(), timeout=PATIENCE, check=False)
    assert ran.returncode == 0
    assert path.read_text() == "second\nto stderr\n"
    assert previous(path).read_text().startswith("first\nxxx")
    assert {path.stat().st_mode & 0o777, previous(path).stat().st_mode & 0o777} == {0o600}


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_is_refused_in_its_place(tmp_path: Path, kind: str) -> None:
    place(tmp_path / "daemon.log", kind)
    ran = subprocess.run(
        [sys.executable, "-c", WRITES, tmp_path / "daemon.log"],
        env=environment(),
        timeout=PATIENCE,
        check=False,
        capture_output=True,
    )
    assert ran.returncode == 1
    assert b"is no regular file: remove it" in ran.stderr
    assert not (tmp_path / "else").exists()
