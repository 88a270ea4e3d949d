"""The manual pages are those of the commands as they are, and `man` has nothing to say against them."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from daemon.cli.table import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").iterdir())


def test_they_are_what_the_parsers_say(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "scripts" / "manpages"))["main"](tmp_path)
    made = {page.name: page.read_text() for page in tmp_path.iterdir()}
    assert made == {page.name: page.read_text() for page in PAGES}, "type `make man`"
    assert set(made) == {"mcpd.1", *(f"mcpd-{command}.1" for command in COMMANDS)}


CHECKS = {
    "mandoc": ["-T", "lint", "-W", "error"],
    "man": ["--local-file", "--warnings", "--encoding=UTF-8"],
}


@pytest.mark.parametrize("program", [name for name in CHECKS if shutil.which(name)])
def test_they_are_well_formed(program: str) -> None:
    done = subprocess.run(
        [program, *CHECKS[program], *PAGES], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
