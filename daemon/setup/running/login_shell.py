"""The PATH of the user's login shell: nvm, pyenv, cargo and others add to it where no service manager looks."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.host.paths import home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHELL_SECONDS = 15.0
"""How long the shell may take: nvm needs a second, a home on a network some; one that asks something waits."""

MOST_BYTES = 256 * 1024
"""Bytes that are read of what the shell prints, its greetings included."""

USUAL = ("/usr/local/bin", "/usr/bin", "/bin")
"""Directories that are in every PATH."""

FLEETING = ("/tmp/", "/run/user/")  # noqa: S108
"""Where directories are made for one session, as fnm does for each shell."""

_MARK = "mcpd-path:"
_COMMAND = f"printf '\\n{_MARK}%s:{_MARK}\\n' \"$PATH\""
_KEPT = ("HOME", "USER", "LOGNAME", "LANG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")


def login_path(environ: Mapping[str, str]) -> tuple[str, str]:
    """The PATH of a login shell that somebody types at, and where it is from, in words.

    If the shell does not tell it, that of `environ`. Directories that do not exist, are not absolute, or are
    made for one session (below the runtime directory and /tmp) are left out, the usual ones and ~/.local/bin
    added.
    """
    shell = environ.get("SHELL") or _shell_of_user()
    told = _asked(shell, environ)
    source = (
        f"the login shell {shell}" if told else f"this shell ({shell or 'no login shell'} did not tell its own)"
    )
    return _sound(told or environ.get("PATH", ""), environ), source


def _shell_of_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        return ""


def _asked(shell: str, environ: Mapping[str, str]) -> str:
    """What a shell prints as its PATH; empty if it does not."""
    if not shell.startswith("/"):
        return ""
    kept = {name: environ[name] for name in _KEPT if name in environ}
    try:
        process = subprocess.Popen(
            [shell, "-lic", _COMMAND],
            # What a login begins with: what stands in this PATH may be of one project or window.
            # Where a login begins, too: version managers take what they find in a directory for its wish.
            cwd=home(environ),
            env={**kept, "SHELL": shell, "PATH": ":".join(USUAL), "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # An interactive shell would take the terminal from us.
            start_new_session=True,
        )
    except OSError:
        return ""
    with process:
        try:
            printed, _ = process.communicate(timeout=SHELL_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    said = printed[-MOST_BYTES:].decode(errors="replace")
    return said.rpartition(f":{_MARK}")[0].rpartition(_MARK)[2]


def _sound(path: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    own = (f"{home}/.local/bin",) if home.startswith("/") else ()
    return ":".join(dict.fromkeys([*_lasting(path, environ), *own, *USUAL]))


def _lasting(path: str, environ: Mapping[str, str]) -> Iterator[str]:
    fleeting = (*FLEETING, environ.get("XDG_RUNTIME_DIR", "/run/user").rstrip("/") + "/")
    for each in path.split(":"):
        if each.startswith("/") and each.isprintable() and not f"{each}/".startswith(fleeting):
            with contextlib.suppress(OSError):
                if Path(each).is_dir():
                    yield each
