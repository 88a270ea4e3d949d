"""A daemon that is not root's, whoever runs the tests: root may look into every process, and proves nothing."""

import json
import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from stat import S_IXOTH
from typing import Any

from tests.e2e.harness import ROOT, Daemon, started

USER = 64_321 if os.getuid() == 0 else os.getuid()
"""Who the daemon runs as; a number that no user of this machine has, if we may choose."""

_OPEN = (
    'exec 9<"$2" && mount -t tmpfs -o mode=755 none "$1" && mkdir -p "$2"'
    ' && mount -c --bind /proc/self/fd/9 "$2" && exec 9<&- && shift 2 && exec "$@"'
)


def _opened() -> list[str]:
    """Begins a command that reaches the checkout though it lies in a directory of root's, as of mktemp(1)."""
    closed = [str(each) for each in reversed(ROOT.parents) if not each.stat().st_mode & S_IXOTH]
    return ["unshare", "--mount", "sh", "-c", _OPEN, "sh", closed[0], str(ROOT)] if closed else []


DROP = (
    [*_opened(), "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []
)

PATHS = os.pathsep.join([str(ROOT), *site.getsitepackages()])
"""Where an interpreter finds what ours does, whichever it is."""


_MOUNT = 'mount -t proc -o hidepid=invisible proc /proc && exec "$@"'


@cache
def veil() -> list[str]:
    """Begins a command that sees /proc as under systemd's ProtectProc=invisible: without what it cannot trace.

    Nothing, where we may not mount: what holds with it must hold without it, too.
    """
    words = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else []


@cache
def interpreter() -> str:
    """One that `USER` may execute: root's may lie in root's home, the system's is of the same version."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        words = [*DROP, "/bin/sh", "-c", 'exec "$0" -c "import daemon, trio"', python]
        if subprocess.run(words, env={"PYTHONPATH": PATHS}, capture_output=True, check=False).returncode == 0:
            return python
    raise AssertionError(f"uid {USER} can execute no Python: install one that everybody may execute")


class Unprivileged(Daemon):
    """A daemon of `USER`, in an interpreter of its own."""

    def __init__(self, directory: Path, config: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        super().__init__(directory, config, {"HOME": str(directory), "PYTHONPATH": PATHS, **environ})
        self.config.write_text(
            self.config.read_text().replace(json.dumps(sys.executable), json.dumps(interpreter()))
        )
        self.forked = False
        self.shell = ""
        self.veil: list[str] = []
        for path in (directory, self.config):
            os.chown(path, USER, USER)

    def start(self) -> None:
        """As any daemon, which may write to the socket that it says READY=1 to."""
        before = os.umask(0)
        try:
            super().start()
        finally:
            os.umask(before)

    def command(self, *words: str) -> list[str]:
        """As of any daemon, without root's rights."""
        script = ["sh", "-c", f'cd "$HOME"; {self.shell}', "sh"] if self.shell else []
        return [*self.veil, *DROP, *script, interpreter(), *super().command(*words)[1:]]


@contextmanager
def unprivileged(
    servers: Callable[[Path], Mapping[str, Any]],
    environ: Mapping[str, str] | None = None,
    shell: str = "",
    *,
    veiled: bool = False,
    **config: Any,
) -> Iterator[Unprivileged]:
    """A daemon, started and in the end stopped; nothing of it may be left.

    Args:
        servers: `mcpServers`, given a directory that the daemon may write to.
        environ: more of its environment.
        shell: a script of sh(1) that executes the daemon, in its directory.
        veiled: whether /proc hides what it can from the daemon.
        config: more of its configuration.
    """
    # Root speaks to another user's daemon only where nobody else could have put its socket.
    directory = Path(tempfile.mkdtemp(prefix="mcpd-", dir="/run" if DROP else None))
    daemon = Unprivileged(directory, {"mcpServers": servers(directory), **config}, environ or {})
    daemon.shell, daemon.veil = shell, veil() if veiled else []
    with started(daemon):
        yield daemon


def after(script: str, server: dict[str, Any], *words: str) -> dict[str, Any]:
    """The `mcpServers` entry of a server that first runs a script of Python's.

    Args:
        script: it ends before the server begins to speak.
        server: the entry of the server that it becomes.
        words: what the script finds in `WORDS`.
    """
    become = "\nimport os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n"
    told = f"import sys\nWORDS = sys.argv[1:{len(words) + 1}]\ndel sys.argv[1:{len(words) + 1}]\n"
    return {
        "command": sys.executable,
        "args": ["-c", told + script + become, *words, server["command"], *server["args"]],
    }
