"""What a daemon writes down of what it starts, and what is read of that."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from loguru import logger

from daemon.processes import leftovers, marks, proc
from tests.unit.processes.dying import DyingDaemon
from tests.unit.processes.scripts import PATIENCE, told_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.processes.leftovers import Identity, Start


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message}")
    yield lines
    logger.remove(sink)


def said(path: Path) -> tuple[Identity, list[Start]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = leftovers.read(fd)
    finally:
        os.close(fd)
    assert found is not None
    return found


def test_a_daemon_writes_down_who_it_is_and_what_it_starts(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["polite", "marked"], "b": ["polite", "marked"]}) as daemon:
        [path] = (tmp_path / leftovers.FOLDER).iterdir()
        identity, found = said(path)
        own, first = proc.read(daemon.pid), proc.read(daemon.pids["a"][0])
        assert own is not None
        assert first is not None
        assert (identity.pid, identity.started) == (daemon.pid, own.started)
        assert identity.is_of_this_boot
        assert identity.is_of_this_namespace
        assert [start.server for start in found] == ["a", "b"]
        assert (found[0].pid, found[0].started) == (first.pid, first.started)
        limit = proc.limit(first.pid)
        assert limit is not None
        assert found[0].mark == limit[0]
        assert found[0].mark >> marks.COUNT_BITS == identity.series
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert path.name == f"{identity.series:x}{leftovers.SUFFIX}"


def test_a_full_file_is_written_anew_with_the_servers_that_live(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from daemon.processes import leftovers as starts
own.adopt_orphans()
child = sleeper()
begun = starts.Starts.begin(Path({str(tmp_path)!r}))
living = marks.new()
begun.note(living, child.pid, "lives")
for _ in range(100):
    mark = marks.new()
    marks.forget(mark)
    begun.note(mark, child.pid, "x" * 1000)
begun.end(keep=True)
fd = os.open(begun.path, os.O_RDONLY)
tell([os.fstat(fd).st_size < starts.FULL_BYTES, starts.read(fd)[1][0].server])
"""
    assert told_by(script) == [True, "lives"]


def test_lines_that_were_cut_off_are_left_out(tmp_path: Path) -> None:
    begun = leftovers.Starts.begin(tmp_path)
    begun.end(keep=True)
    whole = b'{"mark": 1, "pid": 2, "started": 3, "server": "a"}\n'
    with begun.path.open("ab") as file:
        file.write(b'rted": 3, "server": "z"}\n' + whole + b'{"mark": "1"}\n[]\n\xff\n{"mark": 4, "pi')
    assert said(begun.path)[1] == [leftovers.Start(mark=1, pid=2, started=3, server="a")]


def test_who_is_not_our_child_is_not_written_down(tmp_path: Path) -> None:
    """It would be another process of that number: ours has ended meanwhile."""
    begun = leftovers.Starts.begin(tmp_path)
    begun.note(1, os.getpid(), "a")
    begun.note(2, 1 << 22, "b")
    begun.end(keep=True)
    assert said(begun.path)[1] == []


def test_a_disk_that_takes_nothing_is_told_of_once_and_the_daemon_goes_on(
    tmp_path: Path, log: list[str]
) -> None:
    begun = leftovers.Starts.begin(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    whole, full = begun.path.read_bytes(), os.open("/dev/full", os.O_RDWR)
    os.dup2(full, begun._fd)
    os.close(full)
    for number in range(3):
        begun.note(number, child.pid, "a")
    child.communicate(b"", PATIENCE)
    begun.end(keep=True)
    assert begun.path.read_bytes() == whole
    assert len([line for line in log if "cannot record started servers" in line]) == 1


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / leftovers.FOLDER).write_text("")
    with pytest.raises(OSError, match="exists"):
        leftovers.Starts.begin(tmp_path)
