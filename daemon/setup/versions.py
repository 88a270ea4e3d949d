"""The newest version of a package, asked of the client that would fetch it, with the user's own settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from daemon.config.command_lines import Unpinned

LOOKUP_SECONDS = 30.0
"""How long a client may take: npm's own first answer over a slow line takes some seconds."""

_VERSION = r"(\d+(?:\.\d+)+[\w.+!-]*)"
_BARE = re.compile(rf"^{_VERSION}\s*$", re.MULTILINE)
_REQUIRED = re.compile(rf"^[\w.-]+=={_VERSION}", re.MULTILINE)
_IN_PARENTHESES = re.compile(rf"^[\w.-]+ \({_VERSION}\)", re.MULTILINE)


def newest(package: Unpinned, environ: Mapping[str, str], directory: Path) -> str | None:
    """A package's newest version; None if no client is there or answers.

    Args:
        package: what to ask for.
        environ: the environment of the clients.
        directory: where they are started; what lies there configures them.
    """
    for words, given, pattern in _ways(package, environ):
        try:
            done = subprocess.run(
                words,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                env=dict(environ),
                cwd=directory,
                timeout=LOOKUP_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if not done.returncode and (found := pattern.search(done.stdout)) is not None:
            return found[1]
    return None


def _ways(package: Unpinned, environ: Mapping[str, str]) -> Iterator[tuple[list[str], str, re.Pattern[str]]]:
    """Commands that tell the version, what they are given on stdin, and where it stands in what they say."""
    path = environ.get("PATH")
    if package.is_npm:
        if npm := shutil.which("npm", path=path):
            yield [npm, "view", package.name, "version"], "", _BARE
        return
    if uv := shutil.which("uv", path=path):
        # Resolves, and neither installs nor builds anything.
        quiet = ["--no-deps", "--no-build", "--no-header", "--no-annotate", "--quiet"]
        yield [uv, "pip", "compile", *quiet, "-"], package.name, _REQUIRED
    for python in (sys.executable, shutil.which("python3", path=path)):
        if python:
            yield [python, "-m", "pip", "index", "versions", package.name], "", _IN_PARENTHESES
