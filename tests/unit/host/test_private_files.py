"""Private files: replaced as a whole, locked for one at a time, and read through nobody's trick."""

import os
import stat
from pathlib import Path

import pytest

from daemon.host.private_files import locked, own_file, replace, safely


def place(path: Path, kind: str) -> None:
    """Put something that is no file where one is looked for."""
    if kind == "link":
        path.symlink_to(path.with_name("else"))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_of_ours_is_a_file_and_nothing_else(tmp_path: Path, kind: str, flags: int) -> None:
    place(tmp_path / "file", kind)
    with pytest.raises(OSError, match="file is not a regular file: remove it"):
        own_file(tmp_path / "file", flags)
    assert not (tmp_path / "else").exists()


def test_a_file_is_replaced_as_a_whole_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    replace(path, b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - with what is hidden


def test_a_rest_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / ".file.new").symlink_to(tmp_path / "other")
    replace(tmp_path / "file", b"ours")
    assert [(tmp_path / each).read_text() for each in ("other", "file")] == ["somebody's", "ours"]


def test_a_lock_is_held_by_one_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with locked(path, 0.0), pytest.raises(TimeoutError), locked(path, 0.0):
        pass
    with locked(path, 0.0):
        assert not path.exists()


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="symbolic links"):
        open(tmp_path / "link", "rb", opener=safely)  # noqa: SIM115 - it fails
    with open(tmp_path / "pipe", "rb", buffering=0, opener=safely) as pipe:
        assert pipe.read() == b""
