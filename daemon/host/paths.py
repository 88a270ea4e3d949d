"""The paths of sockets, state and configuration (XDG, systemd), and the trust in a socket's owner.

`mcpd connect` imports this module for every window of every agent, so it uses only the standard library.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISLNK
from sys import byteorder


def is_utf8(path: str) -> bool:
    """Whether a path can be written in a message, as file systems accept any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


OTHERS_WRITE = 0o022
"""Mode bits of a directory in which others can create a socket, even if it is sticky."""


def distrust(link: _socket.socket, path: str) -> str:
    """Why the listener at the other end is not trusted, and the remedy; empty if it is trusted.

    mcpd trusts this user, root, and a user whose socket is where only these three could have put it.
    """
    # pid, uid, gid (unix(7), SO_PEERCRED) of the process that called listen(2).
    raw = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(raw[4:8], byteorder)
    if uid in {os.geteuid(), 0} or is_vouched_for(path, uid):
        return ""
    return (
        f"uid {uid} listens on {path}, and anybody could have put a socket there: nothing was sent. If that is"
        f" your daemon, let it listen in a directory that only it, you or root can write to, or run this as"
        f" that user (`sudo -u '#{uid}' …`). If not, somebody imitates your daemon: remove the path"
    )


def is_vouched_for(path: str, uid: int) -> bool:
    """Whether only this user, root and `uid` could have created the file at a path."""
    path = os.path.abspath(path)  # noqa: PTH100 - pathlib takes 7 ms
    return all(_leads_on(each, uid) for each in {path, os.path.realpath(path)})


def _leads_on(path: str, uid: int) -> bool:
    """Whether each directory above belongs to this user or root, or to `uid` below a directory of theirs."""
    ours, given = {os.geteuid(), 0}, False
    for place in _above(path):
        try:
            found = os.lstat(place)
        except OSError:
            return False
        if found.st_uid == uid and uid not in ours:
            given = True
        elif given or found.st_uid not in ours or _is_open(found.st_mode):
            return False
    return True


def _is_open(mode: int) -> bool:
    # A link has no mode of its own; its target is checked separately.
    return bool(mode & OTHERS_WRITE) and not S_ISLNK(mode)


def _above(path: str) -> list[str]:
    found: list[str] = []
    while (above := os.path.dirname(path)) != path:  # noqa: PTH120 - as above
        found.append(above)
        path = above
    return found[::-1]


FRONT = "mcpd.sock"
CONTROL = "control.sock"

SYSTEM = {FRONT: (Path("/run") / FRONT, Path("/run/mcpd") / FRONT), CONTROL: (Path("/run/mcpd") / CONTROL,)}
"""The system service's sockets: first systemd's socket unit, then the unit's RuntimeDirectory."""


USER_RUNTIME = Path("/run/user")
"""Parent of the runtime directories of pam_systemd(8), whether or not the environment names one."""


FALLBACK = Path("/tmp")  # noqa: S108 - owner and mode are checked at bind, and by clients
"""Parent of a user's runtime directory if there is no better place; another user may create it first."""


def home(environ: Mapping[str, str]) -> Path:
    """The home directory, or `/`, where servers start: in a cloned repository npx and uv may run its files."""
    named = environ.get("HOME", "")
    return Path(named if named.startswith("/") and os.access(f"{named}/.", os.X_OK) else "/")


def abbreviated(directory: str, home: str) -> str:
    """An absolute directory as people write it, with `~` for the home directory."""
    home = home.rstrip("/")
    within = home and f"{directory}/".startswith(f"{home}/")
    return f"~{directory.removeprefix(home)}" if within else directory


def xdg(environ: Mapping[str, str], variable: str, below: str) -> Path:
    """The directory that an XDG variable names, if absolute; else the usual one below the home directory."""
    if environ.get(variable, "").startswith("/"):
        return Path(environ[variable])
    home = environ.get("HOME", "")
    return Path(home if home.startswith("/") else "/", below)


def runtime_dir(environ: Mapping[str, str]) -> Path:
    """The directory of the sockets: systemd's, else the user's, else a private one under /tmp."""
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


def secrets_dir(environ: Mapping[str, str]) -> Path:
    """The directory of secrets in files: `$XDG_CONFIG_HOME/mcpd/secrets`."""
    return xdg(environ, "XDG_CONFIG_HOME", ".config") / "mcpd" / "secrets"


def bundles(environ: Mapping[str, str]) -> Path:
    """The directory of unpacked bundles, with a directory for each."""
    return xdg(environ, "XDG_DATA_HOME", ".local/share") / "mcpd" / "bundles"


def config_file(environ: Mapping[str, str]) -> Path:
    """The default configuration file: `$MCPD_CONFIG`, the user's, or the system's."""
    if environ.get("MCPD_CONFIG"):
        return Path(environ["MCPD_CONFIG"])
    own = xdg(environ, "XDG_CONFIG_HOME", ".config") / "mcpd" / "mcpd.json"
    system = Path("/etc/mcpd/mcpd.json")
    return system if not _is_there(own) and _is_there(system) else own


def client_socket(environ: Mapping[str, str]) -> Path:
    """The socket that clients connect to: `$MCPD_SOCKET`, the user's daemon, or the system's."""
    return _reachable(environ, "MCPD_SOCKET", FRONT)


def control_socket(environ: Mapping[str, str], front: str | Path | None = None) -> Path:
    """The socket for operators' commands: `$MCPD_CONTROL`, or next to `front`, the user's, or the system's."""
    if front is None and not environ.get("MCPD_CONTROL"):
        front = environ.get("MCPD_SOCKET")
    return control_beside(Path(front)) if front else _reachable(environ, "MCPD_CONTROL", CONTROL)


def control_beside(front: Path) -> Path:
    """The operators' socket of the daemon whose clients connect to `front`."""
    return SYSTEM[CONTROL][0] if front in SYSTEM[FRONT] else front.with_name(CONTROL)


def served_sockets(
    environ: Mapping[str, str], named: Path | None, front: str | None, control: str | None
) -> tuple[Path, Path]:
    """The sockets for clients and for operators that a daemon binds, unless systemd provides others."""
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
    try:
        return directory.parent == FALLBACK and directory.lstat().st_uid not in {os.getuid(), 0}
    except OSError:
        return False


def _is_there(path: Path) -> bool:
    """Whether a path exists, as far as this user can see; an unreadable directory counts as no."""
    try:
        return path.exists()
    except OSError:
        return False
