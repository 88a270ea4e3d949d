"""The log of a daemon that nobody watches: a file of bounded size, with its predecessor beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.host.private_files import own_file
from daemon.host.sockets import private_directory

if TYPE_CHECKING:
    from pathlib import Path

LOG = "daemon.log"
"""The name of the file, in the state directory."""

MOST_BYTES = 4 * 1024 * 1024
"""Size at which a new file is begun; two of them hold weeks of a quiet daemon, and hours of a busy one."""

_STDERR = 2


class LogFile:
    """A file that takes lines; stderr goes there, too, since nobody reads it.

    A file that has become too large gets the name of its predecessor, which is lost.
    """

    def __init__(self, path: Path) -> None:
        """Open the file for its owner alone, and point stderr at it.

        Raises:
            OSError: the file or its directory cannot be used.
        """
        private_directory(path.parent)
        self._path = path
        self._open()

    def write(self, text: str) -> None:
        """Take a text."""
        self._file.write(text)

    def flush(self) -> None:
        """Write what was taken, and begin another file if this one has become too large. Raises OSError."""
        self._file.flush()
        # Not what was written here alone: stderr writes to it, too.
        if os.fstat(self._file.fileno()).st_size >= MOST_BYTES:
            self._file.close()
            self._path.replace(previous(self._path))
            self._open()

    def _open(self) -> None:
        self._file = open(self._path, "a", encoding="utf-8", errors="backslashreplace", opener=own_file)  # noqa: SIM115
        os.dup2(self._file.fileno(), _STDERR)


def previous(log: Path) -> Path:
    """The path of the file that was the log before this one."""
    return log.with_name(log.name + ".1")
