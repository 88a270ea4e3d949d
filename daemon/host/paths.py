"""The paths of sockets, state and configuration, by the conventions of XDG and systemd.

`mcpd connect` imports this module and is started for every window of every agent: standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FRONT = "mcpd.sock"
CONTROL = "control.sock"

SYSTEM = {
    FRONT: (Path("/run") / FRONT, Path("/run/mcpd") / FRONT),
    CONTROL: (Path("/run/mcpd") / CONTROL,),
}
"""Where the system service has its sockets: systemd's own socket unit, then the unit's RuntimeDirectory."""


USER_RUNTIME = Path("/run/user")
"""Where pam_systemd(8) makes each user's runtime directory, whether or not the environment names it."""


FALLBACK = Path("/tmp")  # noqa: S108 - owner and mode are checked at bind, and by clients
"""Where a user's runtime directory is made if there is no better place; anybody else may make it first."""


def home(environ: Mapping[str, str]) -> Path:
    """The user's home directory, or `/` without one: the directory that servers are started in.

    Not the daemon's own directory: npx, uv and others run what they find there, which may be a repository that
    was just cloned.
    """
    named = environ.get("HOME", "")
    return Path(named if named.startswith("/") and os.access(f"{named}/.", os.X_OK) else "/")


def abbreviated(directory: str, home: str) -> str:
    """An absolute directory as people write it: with `~`, which no other begins with, for the home."""
    home = home.rstrip("/")
    within = home and f"{directory}/".startswith(f"{home}/")
    return f"~{directory.removeprefix(home)}" if within else directory


def xdg(environ: Mapping[str, str], variable: str, below: str) -> Path:
    """The directory that a variable of XDG names, else the usual one below the home directory, or below `/`.

    A relative name counts for nothing, as XDG has it: what lies in the working directory, which may be a
    repository that was just cloned, is nobody's configuration.
    """
    if environ.get(variable, "").startswith("/"):
        return Path(environ[variable])
    home = environ.get("HOME", "")
    return Path(home if home.startswith("/") else "/", below)


def runtime_dir(environ: Mapping[str, str]) -> Path:
    """The directory of the sockets: systemd's, else the user's, else a private one under /tmp.

    MCP clients start their servers with a short list of variables, without XDG_RUNTIME_DIR: the bridge
    must find the daemon all the same.
    """
    if "RUNTIME_DIRECTORY" in environ:
        return Path(environ["RUNTIME_DIRECTORY"].partition(":")[0])
    if environ.get("XDG_RUNTIME_DIR", "").startswith("/"):
        return Path(environ["XDG_RUNTIME_DIR"]) / "mcpd"
    own = USER_RUNTIME / str(os.getuid())
    if own.is_dir():
        return own / "mcpd"
    return FALLBACK / f"mcpd-{os.getuid()}"


def state_dir(environ: Mapping[str, str]) -> Path:
    """The directory of the state: systemd's StateDirectory, else `$XDG_STATE_HOME/mcpd`."""
    if "STATE_DIRECTORY" in environ:
        return Path(environ["STATE_DIRECTORY"].partition(":")[0])
    return xdg(environ, "XDG_STATE_HOME", ".local/state") / "mcpd"


def config_file(environ: Mapping[str, str]) -> Path:
    """The default configuration file: `$MCPD_CONFIG`, the user's, or the system's."""
    if environ.get("MCPD_CONFIG"):
        return Path(environ["MCPD_CONFIG"])
    own = xdg(environ, "XDG_CONFIG_HOME", ".config") / "mcpd" / "mcpd.json"
    return own if _is_there(own) else _system_config(own)


def _system_config(own: Path) -> Path:
    system = Path("/etc/mcpd/mcpd.json")
    return system if _is_there(system) else own


def client_socket(environ: Mapping[str, str]) -> Path:
    """The socket that clients connect to: `$MCPD_SOCKET`, the user's daemon, or the system's."""
    return _reachable(environ, "MCPD_SOCKET", FRONT)


def control_socket(environ: Mapping[str, str], front: str | Path | None = None) -> Path:
    """The socket that operators' commands connect to, beside the clients'.

    Args:
        environ: may name it (`$MCPD_CONTROL`), or the clients' (`$MCPD_SOCKET`); else it is the user's
            daemon's, or the system's.
        front: the clients' socket, if the command line names it.
    """
    if front is None and not environ.get("MCPD_CONTROL"):
        front = environ.get("MCPD_SOCKET")
    return control_beside(Path(front)) if front else _reachable(environ, "MCPD_CONTROL", CONTROL)


def control_beside(front: Path) -> Path:
    """The operators' socket of a daemon whose clients connect to `front`."""
    return SYSTEM[CONTROL][0] if front in SYSTEM[FRONT] else front.with_name(CONTROL)


def served_sockets(
    environ: Mapping[str, str], named: Path | None, front: str | None, control: str | None
) -> tuple[Path, Path]:
    """The sockets for clients and for operators that a daemon binds, unless systemd gives it others.

    Args:
        environ: its environment.
        named: the clients' socket on its command line.
        front: the same in its configuration.
        control: the operators' in its configuration.
    """
    runtime = runtime_dir(environ)
    chosen = named or front or environ.get("MCPD_SOCKET")
    if not control and not named:
        control = environ.get("MCPD_CONTROL")
    beside = control_beside(Path(chosen)) if chosen else runtime / CONTROL
    return Path(chosen or runtime / FRONT), Path(control or beside)


def _reachable(environ: Mapping[str, str], variable: str, name: str) -> Path:
    if environ.get(variable):
        return Path(environ[variable])
    own = runtime_dir(environ) / name
    candidates = SYSTEM[name] if _is_taken(own.parent) else (own, *SYSTEM[name])
    return next((path for path in candidates if _is_there(path)), own)


def _is_taken(directory: Path) -> bool:
    """Whether another user has made the directory under `FALLBACK`."""
    try:
        return directory.parent == FALLBACK and directory.lstat().st_uid not in {os.getuid(), 0}
    except OSError:
        return False


def _is_there(path: Path) -> bool:
    """Whether a path exists, as far as this user can see: an unreadable directory is not an error."""
    try:
        return path.exists()
    except OSError:
        return False
