"""Installs and removes mcpd as a service of the user's systemd."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs

from daemon.documents.files import Edit, keep_backup, look, replace
from daemon.errors import McpdError
from daemon.host import paths
from daemon.host.paths import home, xdg
from daemon.setup.running.starting import ACTIVE, EX_CONFIG, end, listener
from daemon.setup.running.systemctl import (
    HTTP_SOCKET,
    SERVICE,
    SHOW_JOURNAL,
    SOCKET,
    Systemctl,
    SystemdRefused,
    answer,
    systemctl,
)

SHELL_SECONDS = 15.0
"""Seconds for a login shell: nvm takes one, a network home some; a shell that asks a question hangs."""

MOST_BYTES = 256 * 1024
"""Bytes of a login shell's output, with its greetings."""

USUAL = ("/usr/local/bin", "/usr/bin", "/bin")

FLEETING = ("/tmp/", "/run/user/")  # noqa: S108
"""Directories that exist for one session only, such as fnm's for each shell."""

_MARK = "mcpd-path:"
_COMMAND = f"printf '\\n{_MARK}%s:{_MARK}\\n' \"$PATH\""
_KEPT = ("HOME", "USER", "LOGNAME", "LANG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")


def login_path(environ: Mapping[str, str]) -> tuple[str, str]:
    """The PATH of a login shell, or else of `environ`, without directories of one session; and its source."""
    shell = environ.get("SHELL") or _account("pw_shell", "")
    own = _asked(shell, environ)
    untold = f"{shell} did not tell its PATH" if shell else "there is no login shell"
    source = f"the login shell {shell}" if own else f"this shell ({untold})"
    return _sound(own or environ.get("PATH", ""), environ), source


def _asked(shell: str, environ: Mapping[str, str]) -> str:
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
    output = printed[-MOST_BYTES:].decode(errors="replace")
    return output.rpartition(f":{_MARK}")[0].rpartition(_MARK)[2]


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


MARK = "# Written by `mcpd service install`; `mcpd service uninstall` removes it unless it is edited. sha256: "

DROP_IN = "mcpd.service.d/mcpd.conf"
"""The drop-in with this machine's values: the path of mcpd and the PATH."""


def unit_files() -> Traversable:
    """The directory of the unit files: in the package, or in the repository."""
    packaged = files("daemon").joinpath("units")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "systemd"


def unit_directory(environ: Mapping[str, str]) -> Path:
    """The directory of the user's own units (systemd.unit(5))."""
    return xdg(environ, "XDG_CONFIG_HOME", ".config") / "systemd" / "user"


def wanted_files(program: str, path: str) -> dict[str, bytes]:
    """The unit files to install, by name; `program` is the absolute path of mcpd, `path` the PATH."""
    shipped = {
        each.name: each.read_text(encoding="utf-8")
        for each in unit_files().joinpath("user").iterdir()
        if each.name.endswith((".service", ".socket"))
    }
    return {name: _marked(text) for name, text in {**shipped, DROP_IN: _drop_in(program, path)}.items()}


def is_untouched(content: bytes) -> bool:
    """Whether any version of mcpd wrote a file, and no one has edited it since."""
    first, _, rest = content.partition(b"\n")
    return first == MARK.encode() + hashlib.sha256(rest).hexdigest().encode()


def path_of(drop_in: bytes) -> str:
    """The PATH in a drop-in; empty without one."""
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
    """Quote a text for a unit (systemd.syntax(7)), where `%` would begin a specifier."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


LINGER = Path("/var/lib/systemd/linger")
"""The directory with a file for each user whose units run without a login (loginctl(1), enable-linger)."""

LOGINCTL_SECONDS = 10.0
"""Seconds for loginctl, which answers in milliseconds unless it asks for a password."""

STOP_SECONDS = 20.0
"""Seconds for another daemon to stop before the service starts."""


_NOT_STARTED = re.compile(r"""["'\\\x00-\x1f\x7f]""")


class ServiceRefused(McpdError):
    """The service cannot be installed or removed; the text has the reason, and the ways without a service."""


@attrs.frozen(kw_only=True)
class UnitPlan:
    """The changes of an installation."""

    changes: tuple[Edit, ...]
    path: str
    source: str


def planned(environ: Mapping[str, str], program: str) -> UnitPlan:
    """Plan an installation; this asks the login shell for its PATH. Raises ServiceRefused and DocumentError."""
    if _NOT_STARTED.search(program):
        raise ServiceRefused(
            f"systemd starts no program with quotes, backslashes or control characters in its path ({program}):"
            " install mcpd elsewhere"
        )
    path, source = login_path(environ)
    folder = unit_directory(environ)
    looked = ((look(folder / name), after) for name, after in wanted_files(program, path).items())
    changes = (Edit(found=found, text=after.decode()) for found, after in looked if found.content != after)
    return UnitPlan(changes=tuple(changes), path=path, source=source)


@attrs.frozen(kw_only=True)
class Installed:
    """The result of an installation."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    ended: int | None
    linger: str
    """Why the service ends at the last logout; empty if the service goes on."""


def install(environ: Mapping[str, str], plan: UnitPlan, *, now: bool = True, linger: bool = True) -> Installed:
    """Write the units, enable them, and start them if `now`; `linger` lets them run without a login.

    Raises ServiceRefused if there is no service manager or it refuses, DocumentError if a file cannot be
    written, and NotStopped if another daemon does not end.
    """
    manager = reached(environ)
    kept = []
    for change in plan.changes:
        if change.found.content is not None and not is_untouched(change.found.content):
            kept.append(keep_backup(change.found, paths.state_dir(environ) / "backups" / "service"))
        replace(change.found, change.text.encode())
    ended = None
    try:
        manager.tell("daemon-reload")
        manager.tell("enable", SERVICE, SOCKET)
        if now:
            ended = _make_way(environ, manager)
            # Not `start`: one that runs is to have what was written.
            manager.tell("restart", SOCKET, SERVICE)
    except SystemdRefused as error:
        faulty = manager.show(SERVICE).get("ExecMainStatus") == str(EX_CONFIG)
        helps = (
            "`mcpd check` says what is wrong with the configuration"
            if faulty
            else f"{error}\n`{SHOW_JOURNAL}` says more"
        )
        raise ServiceRefused(f"the units are written, but the service does not start: {helps}") from None
    return Installed(
        written=tuple(change.found.path for change in plan.changes),
        kept=tuple(kept),
        ended=ended,
        linger=_enable_linger(environ) if linger else "",
    )


def reached(environ: Mapping[str, str]) -> Systemctl:
    """The user's service manager. Raises ServiceRefused if there is none."""
    manager = systemctl(environ)
    if manager is not None and manager.answers():
        return manager
    why = (
        "there is no systemd here"
        if manager is None
        else "this user's systemd does not answer (it runs only after a login;"
        f" `sudo loginctl enable-linger {_user()}` starts it without one)"
    )
    raise ServiceRefused(
        f"{why}: nothing was changed. Without the service, `mcpd connect` and `mcpd start` start the daemon,"
        " but nothing does at a boot"
    )


def _make_way(environ: Mapping[str, str], manager: Systemctl) -> int | None:
    pid = listener(paths.runtime_dir(environ) / paths.CONTROL)
    if pid is None or manager.pid() == pid:
        return None
    end(pid, STOP_SECONDS)
    return pid


# --- the end of it ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Removed:
    """The result of an uninstallation."""

    removed: tuple[Path, ...]
    edited: tuple[Path, ...]


def uninstall(environ: Mapping[str, str]) -> Removed:
    """Stop and disable the service, and remove those of mcpd's files that no one has edited.

    Raises ServiceRefused if the service manager refuses, and DocumentError if a file cannot be read.
    """
    folder = unit_directory(environ)
    names = wanted_files("/", "")
    found = {folder / name: look(folder / name).content for name in names}
    manager = systemctl(environ)
    if manager is not None and manager.answers():
        known = [
            unit for unit in (SOCKET, HTTP_SOCKET, SERVICE) if folder / unit in found and found[folder / unit]
        ]
        try:
            if known:
                manager.tell("disable", "--now", *known)
        except SystemdRefused as error:
            raise ServiceRefused(f"systemd refused: {error}; nothing was removed") from None
    ours = tuple(path for path, content in found.items() if content is not None and is_untouched(content))
    for path in ours:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / DROP_IN).parent.rmdir()
    if manager is not None and ours:
        with contextlib.suppress(SystemdRefused):
            manager.tell("daemon-reload")
    edited = tuple(path for path, content in found.items() if content is not None and path not in ours)
    return Removed(removed=ours, edited=edited)


# --- how it is --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ServiceState:
    """The service's state."""

    installed: bool
    enabled: bool
    active: bool
    """Whether the daemon is running or starts with the first client."""
    pid: int | None
    linger: bool
    path: str
    differing: tuple[str, ...]
    manager: bool


def state(environ: Mapping[str, str], program: str) -> ServiceState:
    """Read the service's state; changes nothing, and does not ask the login shell. Raises DocumentError."""
    folder = unit_directory(environ)
    drop_in = look(folder / DROP_IN).content or b""
    wanted = wanted_files(program, path_of(drop_in))
    manager = systemctl(environ)
    answers = manager is not None and manager.answers()
    service, socket = (manager.show(unit) if manager and answers else {} for unit in (SERVICE, SOCKET))
    pid = int(service.get("MainPID") or 0)
    return ServiceState(
        installed=(folder / SERVICE).exists(),
        enabled="enabled" in {service.get("UnitFileState"), socket.get("UnitFileState")},
        active=not ACTIVE.isdisjoint({service.get("ActiveState"), socket.get("ActiveState")}),
        pid=pid or None,
        linger=lingers(),
        path=path_of(drop_in),
        differing=tuple(name for name, after in wanted.items() if look(folder / name).content != after),
        manager=answers,
    )


def written_by_us(environ: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """The installed PATH, and files of other versions; None if not installed. Raises DocumentError."""
    folder = unit_directory(environ)
    drop_in = look(folder / DROP_IN).content
    if drop_in is None:
        return None
    path = path_of(drop_in)
    # Which program it runs is of no account here.
    wanted = {name: after for name, after in wanted_files("/", path).items() if name != DROP_IN}
    return path, [name for name, after in wanted.items() if look(folder / name).content != after]


# --- without a login --------------------------------------------------------------------------------------


def lingers() -> bool:
    """Whether this user's services run without a login."""
    return (LINGER / _user()).exists()


def _enable_linger(environ: Mapping[str, str]) -> str:
    """Enable lingering; return why that failed and the remedy, or an empty text."""
    if lingers():
        return ""
    program = shutil.which("loginctl", path=environ.get("PATH"))
    why = "there is no loginctl"
    if program is not None:
        try:
            answer([program, "--no-ask-password", "enable-linger"], environ, LOGINCTL_SECONDS)
        except SystemdRefused as error:
            why = str(error)
        else:
            return ""
    return f"{why}: `sudo loginctl enable-linger {_user()}`"


def _user() -> str:
    return _account("pw_name", str(os.geteuid()))


def _account(field: str, otherwise: str) -> str:
    try:
        return str(getattr(pwd.getpwuid(os.geteuid()), field))
    except KeyError:
        return otherwise
