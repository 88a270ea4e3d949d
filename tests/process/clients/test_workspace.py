"""A workspace that the daemon's user must not enter, as a process sees it that is not root's."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOOK = """
import os, sys
from daemon.clients.workspace import directory_at
if os.getuid() == 0:
    os.setuid(65534)
print(directory_at(sys.argv[1], implied=False))
"""


def test_a_directory_that_must_not_be_entered_is_no_workspace(tmp_path: Path) -> None:
    tmp_path.chmod(0o600)
    try:
        looked = subprocess.run(
            [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True
        )
    finally:
        tmp_path.chmod(0o700)
    assert looked.stdout.startswith("(None, ")
    assert "must not be entered by the user that mcpd runs as" in looked.stdout or (
        "cannot be read: Permission denied" in looked.stdout
    )
