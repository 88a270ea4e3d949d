"""The units for one user's systemd: those of this version, and the drop-in that fits them to this machine.

Each file that is written begins with a line that has the digest of the rest: so a file is known later as one
that nobody has edited, whatever version wrote it.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.host.paths import xdg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

MARK = "# Written by `mcpd service install`; `mcpd service uninstall` removes it unless it is edited. sha256: "

DROP_IN = "mcpd.service.d/mcpd.conf"
"""What is of this machine: which program runs, and its PATH."""


def unit_files() -> Traversable:
    """The directory of the units: in the package, or beside it where mcpd runs from its repository."""
    packaged = files("daemon").joinpath("units")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "systemd"


def unit_directory(environ: Mapping[str, str]) -> Path:
    """Where a user's own units are (systemd.unit(5))."""
    return xdg(environ, "XDG_CONFIG_HOME", ".config") / "systemd" / "user"


def wanted_files(program: str, path: str) -> dict[str, bytes]:
    """What is to be installed, by name below the directory of units.

    Args:
        program: the absolute path of mcpd.
        path: the PATH that the daemon is to have, and its servers with it.
    """
    shipped = {
        each.name: each.read_text(encoding="utf-8")
        for each in unit_files().joinpath("user").iterdir()
        if each.name.endswith((".service", ".socket"))
    }
    return {name: _marked(text) for name, text in {**shipped, DROP_IN: _drop_in(program, path)}.items()}


def is_untouched(content: bytes) -> bool:
    """Whether a file is as it was written here, by this version or another."""
    first, _, rest = content.partition(b"\n")
    return first == MARK.encode() + hashlib.sha256(rest).hexdigest().encode()


def path_of(drop_in: bytes) -> str:
    """The PATH that a drop-in sets; empty if it sets none."""
    for line in drop_in.decode(errors="replace").splitlines():
        if line.startswith('Environment="PATH='):
            quoted = line.removeprefix('Environment="PATH=').removesuffix('"')
            return quoted.replace("%%", "%").replace('\\"', '"').replace("\\\\", "\\")
    return ""


def _marked(text: str) -> bytes:
    raw = text.encode()
    return MARK.encode() + hashlib.sha256(raw).hexdigest().encode() + b"\n" + raw


def _drop_in(program: str, path: str) -> str:
    # Of a command line, systemd puts no variables into the program.
    run = _quoted(program)
    return (
        "# Which program runs, and the PATH that the login shell had when this was installed.\n"
        "[Service]\n"
        "ExecStart=\n"
        f'ExecStart="{run}" run\n'
        "ExecReload=\n"
        f'ExecReload="{run}" reload\n'
        f'Environment="PATH={_quoted(path)}"\n'
    )


def _quoted(text: str) -> str:
    """A text within double quotes of a unit (systemd.syntax(7)); `%` would begin a specifier."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
