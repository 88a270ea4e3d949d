"""A Debian with only Python, pipx and git, as a new user finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parent.parent.parent
USER = "ann"
HOME = f"/home/{USER}"
PATIENCE = 180.0
"""Seconds that one command may take: an installation over a slow network."""

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORK = (Path("/etc/resolv.conf"), Path("/etc/hosts"), CERTIFICATES)
"""The host's files about its network, which the container shares."""


@attrs.frozen
class Ran:
    """A finished command of a user."""

    status: int
    said: str
    """Its stdout and stderr, in order."""
    seconds: float


@attrs.frozen
class Machine:
    """The mounted container."""

    root: Path

    def type(self, command: str, variables: Mapping[str, str] | None = None) -> Ran:
        """Run a command in the user's shell to its end, with only a login's environment."""
        login = {
            "HOME": HOME,
            "USER": USER,
            "PATH": f"{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        given = [f"{name}={value}" for name, value in {**login, **_pip(), **(variables or {})}.items()]
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        words = ["chroot", str(self.root), *become, "env", "-i", *given, "bash", "-c", f"cd && {command}"]
        began = time.monotonic()
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, time.monotonic() - began)

    def check_out(self, path: str) -> None:
        """Put the last commit of this repository into the user's home."""
        place = self.root / HOME.lstrip("/") / path
        subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True, timeout=PATIENCE)
        subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", place], check=True, timeout=PATIENCE)

    def write(self, path: str, text: str) -> None:
        """Write a file in the user's home."""
        file = self.root / HOME.lstrip("/") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        shutil.chown(file.parent, USER_ID, USER_ID)
        shutil.chown(file, USER_ID, USER_ID)


TOLD: list[str] = []
"""Lines for the end of the run: the duration of each command."""

USER_ID = 1000
"""The first user of a Debian."""


def machine(base: Path, mounted: Path) -> Machine:
    """Mount the Debian at `base`, with a tmpfs over it: for a process in a separate mount namespace."""
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "tmpfs", str(mounted))
    for name in ("upper", "work", "root"):
        (mounted / name).mkdir()
    layers = f"lowerdir={base},upperdir={mounted}/upper,workdir={mounted}/work"
    root = mounted / "root"
    _mount("-t", "overlay", "overlay", "-o", layers, str(root))
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("--rbind", "/dev", str(root / "dev"))
    for file in NETWORK:
        shutil.copy(file, root / str(file).lstrip("/"))
    for path in (*_indexes(), ROOT / ".cache" / "agents"):
        _show(path, root)
    for name, program in agents():
        (root / "usr/local/bin" / name).symlink_to(program)
    return Machine(root)


def agents() -> Iterator[tuple[str, Path]]:
    """The programs of the two agents, by the names that users type."""
    modules = ROOT / ".cache" / "agents" / "node_modules"
    yield "claude", next(modules.glob("@anthropic-ai/claude-code-*/claude"))
    yield "codex", next(modules.glob("@openai/codex-*/vendor/*/bin/codex"))


def _show(path: Path, root: Path) -> None:
    """Show a directory of the host in the container, at the same path, read-only."""
    inside = root / str(path).lstrip("/")
    inside.mkdir(parents=True, exist_ok=True)
    _mount("--bind", "-o", "ro", str(path), str(inside))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=PATIENCE)


def _pip() -> dict[str, str]:
    """The variables by which pip and uv reach the package index, as on the host."""
    names = (
        "PIP_FIND_LINKS",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "HTTPS_PROXY",
        "NO_PROXY",
    )
    given = {name: os.environ[name] for name in names if name in os.environ}
    return {**given, "PIP_CERT": str(CERTIFICATES), "SSL_CERT_FILE": str(CERTIFICATES)}


def _indexes() -> Iterator[Path]:
    """Directories of packages that pip is configured to search."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        for word in os.environ.get(name, "").split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.is_dir():
                yield path
