"""Resolves a server's sandbox to absolute paths, each with the server's access to it (docs/sandbox.md).

Symbolic links and `..` are resolved before a place is shown. A link that the server itself could have made is
refused: the next start would follow the link out of the sandbox. Blocks: it looks at files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import cache
from itertools import pairwise
from pathlib import Path

import attrs
import msgspec

from daemon.causes import Cause
from daemon.config.command_lines import packages_in, started
from daemon.config.config_files import FOLDER
from daemon.config.config_model import WORKSPACE, Server
from daemon.config.expand import ENV_FILE
from daemon.config.lock_file import LOCK
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.errors import CannotStart
from daemon.host import paths


class Access(IntEnum):
    """A server's access to a place; if a path has two, the higher number counts."""

    HIDDEN = 0
    READ = 1
    WRITE = 2
    READ_ONLY = 3
    """Not writable, although inside a writable place."""


@attrs.frozen(kw_only=True)
class DaemonPlaces:
    """The daemon's own files and environment, as far as sandboxes depend on them."""

    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    private: tuple[str, ...] = ()
    """The daemon's configuration, state and sockets, which no server may reach."""

    @classmethod
    def of(cls, environ: Mapping[str, str], config: Path, *others: str) -> DaemonPlaces:
        """The places of a daemon with this configuration file, and with state and sockets at `others`."""
        beside = [str(config.with_name(each)) for each in (ENV_FILE, LOCK, FOLDER)]
        beside.append(str(paths.secrets_dir(environ)))
        return cls(environ=environ, private=(str(config), *beside, *filter(None, others)))

    @property
    def data(self) -> str:
        """The directory that contains a directory for each sandboxed server."""
        if "STATE_DIRECTORY" in self.environ:
            return str(paths.state_dir(self.environ) / "servers")
        return str(paths.xdg(self.environ, "XDG_DATA_HOME", ".local/share") / "mcpd" / "servers")

    def directories_of(self, server: Server) -> tuple[str, str]:
        """A server's directory, and the directory in it whose files persist; each instance has its own."""
        root = os.path.realpath(os.path.join(self.data, server.name))  # noqa: PTH118 - pathlib takes 7 ms
        if not server.instance:
            return root, os.path.realpath(f"{root}/data")
        # Without the server's name, which may change; mcpd 0.1.0 hashed it, too.
        session = server.instance.session
        labels = session or server.label, session or server.label.removeprefix(server.name)
        former, data = (f"{root}/instances/{hashlib.sha256(each.encode()).hexdigest()[:16]}" for each in labels)
        with suppress(OSError):
            os.rename(former, data)  # noqa: PTH104 - pathlib takes 7 ms
        return root, os.path.realpath(data)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox of one server or instance, with resolved paths."""

    mode: SandboxMode
    command: str
    home: str
    cwd: str
    places: Mapping[str, Access]
    present: set[str]
    """The hidden places that may exist."""
    links: Mapping[str, str]
    """Links on the way to the program, with their targets; they are made again where the mode hides them."""
    own: Mapping[str, str]
    """Places inside the sandbox, each with the server's own directory outside that is mounted there."""
    data: str
    """The server's own directory, MCPD_DATA_DIR inside, whose files persist."""


@cache
def table() -> Mapping[str, tuple[str, ...]]:
    """The lists of `places.toml`."""
    read = tomllib.loads(Path(__file__).with_name("places.toml").read_text(encoding="utf-8"))
    return {name: tuple(listed) for name, listed in read.items()}


SECRETS = ("keys", "cloud", "logins", "histories", "browsers", "agents", "machine")
"""The lists of `places.toml` whose files no server may read."""


def resolve(server: Server, rules: SandboxRules, around: DaemonPlaces, path: str) -> Policy:
    """Resolve the sandbox of a server whose programs are searched in `path`.

    Raises `CannotStart` (`sandbox-unavailable`): a path is missing, or leads out of the sandbox; and
    FileNotFoundError: no such command.
    """
    home = os.path.realpath(paths.home(around.environ))
    if home == "/":
        raise unavailable("mcpd has no home directory: set HOME", problem="home")
    command, cwd = server.command or "", server.cwd or str(paths.home(around.environ))
    found = shutil.which(os.path.join(cwd, command) if "/" in command else command, path=path)  # noqa: PTH118
    if found is None:
        raise FileNotFoundError(command)
    resolved = _Places(server, rules, around, home)
    resolved.add_all()
    resolved.add_program(found)
    root, data = around.directories_of(server)
    return Policy(
        mode=rules.mode,
        command=found,
        home=home,
        cwd=os.path.realpath(cwd),
        places=resolved.found,
        present=resolved.present,
        links=resolved.links,
        own={**resolved.own(f"{root}/caches/{contents_of(server)}"), data: data},
        data=data,
    )


def contents_of(server: Server) -> str:
    """Names a server's caches by its packages: an entry with other packages must not run files of these."""
    runs = started((server.command or "", *server.args))
    names = sorted(f"{each.source} {each.name}" for run in runs for each in packages_in(run))
    return hashlib.sha256(" ".join(names or [server.identity]).encode()).hexdigest()[:16]


def unavailable(error: str, **data: str) -> CannotStart:
    """The error for a sandbox that cannot be made: mcpd does not start the server unconfined."""
    text = f"cannot make its sandbox: {error}. mcpd does not start it unconfined"
    return CannotStart(text, Cause.SANDBOX_UNAVAILABLE, error=error, **data)


def unmade(error: str) -> CannotStart:
    """The error for a sandbox that the system refused to make, with the kind of refusal."""
    words = error.lower()
    if "enospc" in words or ("no space left" in words and "unshare" in words):
        return unavailable(error, problem="limit")
    if any(each in words for each in _OF_NAMESPACES):
        return unavailable(error, problem=_refuser(), python=os.path.realpath(sys.executable))
    if "proc" in words and "permitted" in words:
        return unavailable(error, problem=_unit_or("proc"))
    return unavailable(error, problem="setup")


_OF_NAMESPACES = ("namespace", "unshare", "uid map", "uid_map", "capset", "'mount'", "loopback")
"""Words of the stub and of bubblewrap for a refused namespace, or refused rights within one."""


def _refuser() -> str:
    """The first setting found that refuses user namespaces."""
    apparmor = ("apparmor", "apparmor_restrict_unprivileged_userns", "1")
    for problem, name, refusing in (apparmor, ("userns", "unprivileged_userns_clone", "0")):
        with suppress(OSError), open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:  # noqa: PTH123
            if file.read().strip() == refusing:
                return problem
    return _unit_or("namespaces")


def _unit_or(problem: str) -> str:
    """`unit` if the daemon runs as the system's unit, which forbids sandboxes unless told otherwise."""
    return "unit" if "STATE_DIRECTORY" in os.environ else problem


def is_within(path: str, directory: str) -> bool:
    """Whether a path equals a directory or is below it; both are absolute and resolved."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


@cache
def _secrets(home: str, *moved: tuple[str, str]) -> Mapping[str, set[str]]:
    """The paths that no server may read (key ""), and for each directory above them the entries on the way."""
    listed = [each for name in SECRETS for each in table()[name]]
    found = {"": {os.path.join(home, each) for each in listed}}  # noqa: PTH118
    for directory, usual in moved:  # variables of the daemon say so
        elsewhere = {directory + each.removeprefix(usual) for each in listed if is_within(each, usual)}
        found[""] |= {each for each in elsewhere if not is_within(home, each)}
    for path in tuple(found[""]):
        for entry, directory in pairwise((path, *above(path))):
            found.setdefault(directory, set()).add(entry)
            if directory == home:
                break
    return found


def above(path: str) -> Iterator[str]:
    """The directories above a path, nearest first."""
    while (holder := os.path.dirname(path)) not in {path, ""}:  # noqa: PTH120 - pathlib takes 7 ms
        yield (path := holder)


class _Places:
    def __init__(self, server: Server, rules: SandboxRules, around: DaemonPlaces, home: str) -> None:
        self.found: dict[str, Access] = {}
        self.links: dict[str, str] = {}
        self._server, self._rules, self._home = server, rules, home
        self._cwd = server.cwd or home
        self._around = around
        self._writable: list[str] = []
        self._real: dict[str, str] = {}
        named = ((around.environ.get(name, ""), usual) for name, usual in map(str.split, table()["variables"]))
        moved = ((at, usual) for texts, usual in named for at in texts.split(":") if at != os.devnull)
        self._secrets = _secrets(home, *((os.path.normpath(at), usual) for at, usual in moved if at[:1] == "/"))
        self.present: set[str] = set()

    def add_all(self) -> None:
        files = self._rules.filesystem
        self.found = dict.fromkeys(self._secrets[""], Access.HIDDEN)
        self._hide_present("/")
        self._hide_present(self._home)
        self._hide(*self._around.private, *map(self._absolute, _sound(files.deny_read)))
        workspace = self._server.instance.workspace if self._server.instance else None
        named = {"workspace": workspace, "cwd": self._server.cwd}
        working = {key: path for key, path in named.items() if path and not self._is_wide(path)}
        strict = self._rules.mode is SandboxMode.STRICT
        changing = [key for key in working if not (self._own_in(working[key]) or (key == "cwd" and strict))]
        self._writable += [os.path.realpath(working[key]) for key in changing]
        self._writable += [os.path.realpath(self._absolute(each)) for each in _sound(files.allow_write)]
        for key, path in working.items():
            if key in changing:
                self._open(path, Access.WRITE, key)
            elif self._is_shut(os.path.realpath(path)):
                self._open(path, Access.READ, key)
        self._allow(files.allow_read, Access.READ, "allowRead")
        self._allow(files.allow_write, Access.WRITE, "allowWrite")
        for each in _sound(files.deny_write):
            path = self._followed(self._absolute(each), "denyWrite")
            if os.path.lexists(path):
                self._put(path, Access.READ_ONLY)
            elif any(is_within(path, writable) for writable in self._writable):
                raise self._missing(each, "denyWrite")

    def add_program(self, found: str) -> None:
        """Show a program, files among its arguments, and its bundle, where the mode hides them."""
        bundle = os.path.realpath(self._server.origin.bundle or "/") if self._server.origin else "/"
        if os.path.dirname(bundle).endswith("/mcpd/bundles"):  # noqa: PTH120
            self._put(bundle, Access.READ)
        shared = {self._home, f"{self._home}/.local", "/", "/usr", "/usr/local"}
        shared |= {path for path, access in self.found.items() if access is Access.HIDDEN}
        for each in (*_installed(found, shared, self._forged), *self._files_named()):
            if self._is_shut(each) and not self._forged(found):
                self._put(each, Access.READ)
        shut = {each: os.path.dirname(each) for each in _links(found) if self._is_shut(each)}  # noqa: PTH120
        if not self._forged(found):
            # One behind another is made where that leads.
            self.links = {each: os.readlink(each) for each, at in shut.items() if self._resolved(at) == at}  # noqa: PTH115

    def own(self, caches: str) -> dict[str, str]:
        made = dict[str, str]()
        is_offline = self._rules.mode is SandboxMode.STRICT and not self._rules.hosts
        for each in (*table()["caches"], *table()["tools"]):
            inside = self._resolved(f"{self._home}/{each}")
            if inside in self.found:
                continue
            outside = f"{caches}/{each.replace('/', '+')}"
            # An empty one is not worth a mount where nothing can come into it, or where another holds it.
            tools = _listed(inside) if each in table()["tools"] else []
            is_idle = is_offline or any(is_within(inside, other) for other in made)
            if not is_idle or tools or _listed(outside):
                made[inside] = outside
            for tool in tools:
                # An empty one has no program, and the server may need to write it: Playwright's `b`.
                is_empty = os.path.isdir(tool) and not os.listdir(tool)  # noqa: PTH112, PTH208
                if not (is_empty or self._secret_behind(tool)):
                    self.found.setdefault(tool, Access.READ)
        return made

    def _files_named(self) -> Iterator[str]:
        for each in self._server.args:
            path = os.path.join(self._cwd, each)  # noqa: PTH118
            if not each or not os.path.isfile(path) or self._forged(path):  # noqa: PTH113
                continue
            if not self._hidden_above(real := os.path.realpath(path)):
                yield real

    def _is_wide(self, directory: str) -> bool:
        """Whether a directory contains the whole home directory, or belongs to a secret."""
        path = os.path.realpath(directory)
        return is_within(self._home, path) or bool(self._hidden_above(path))

    def _is_shut(self, path: str) -> bool:
        around = [path, *above(path)]
        if any(self.found.get(each) for each in around):
            return False
        empty = [f"{self._home}/{each}" for each in table()["caches"]]
        if self._home not in around or self._rules.mode is SandboxMode.STRICT:
            empty += [*table()["empty"], self._home]
        return bool(self._hidden_above(path)) or not set(empty).isdisjoint(around)

    def _hidden_above(self, path: str) -> str:
        """The nearest hidden place that equals or contains a path; empty if there is none."""
        return next((each for each in (path, *above(path)) if self.found.get(each) is Access.HIDDEN), "")

    def _hide_present(self, directory: str) -> None:
        """Note the existing secrets below a directory, and hide the targets of links among them."""
        found = self._secrets[directory]
        with suppress(OSError):
            found = found.intersection(map(f"{directory.rstrip('/')}/".__add__, os.listdir(directory)))  # noqa: PTH208
        for path in found:
            below = f"{path}/"
            if os.path.islink(path):  # noqa: PTH114
                self._hide(*(each for each in self._secrets[""] if f"{each}/".startswith(below)))
            elif path in self._secrets:
                self._hide_present(path)
            if path in self._secrets[""]:
                self.present.add(path)

    def _hide(self, *paths: str) -> None:
        for each in (*map(os.path.normpath, paths), *map(self._resolved, paths)):
            self.present.add(each)
            self._put(each, Access.HIDDEN)

    def _resolved(self, path: str) -> str:
        """The real path; each directory is resolved once, as hundreds of paths share a few directories."""
        if path not in self._real:
            directory, name = os.path.split(path)
            if name in {"", ".", ".."} or os.path.islink(path):  # noqa: PTH114
                return os.path.realpath(path)
            self._real[path] = os.path.join(self._resolved(directory), name)  # noqa: PTH118
        return self._real[path]

    def _put(self, path: str, access: Access) -> None:
        self.found[path] = max(access, self.found.get(path, access))

    def _allow(self, written: tuple[str, ...], access: Access, key: str) -> None:
        for each in _sound(written):
            path = self._absolute(each)
            if not os.path.exists(path):  # noqa: PTH110
                raise self._missing(each, key)
            self._open(path, access, key)

    def _open(self, path: str, access: Access, key: str) -> None:
        """Add a place; raises CannotStart if the server could then write mcpd's own files.

        Hiding those would not last: a program that replaces such a file removes the mount over the old one.
        """
        real = self._followed(path, key)
        if access is Access.WRITE and (ours := self._own_in(real)):
            error = f"`{key}` has {path}, which contains {ours}, a file or directory of mcpd"
            raise unavailable(error, problem="private", path=path, own=ours)
        self._put(real, access)

    def _own_in(self, directory: str) -> str:
        real, ours = os.path.realpath(directory), map(os.path.realpath, self._around.private)
        return next((each for each in ours if is_within(each, real)), "")

    def _followed(self, path: str, key: str) -> str:
        """Resolve a path of the entry; raises CannotStart if a link on the way could lead anywhere."""
        # A workspace was allowed without any link.
        if link := next(_links(path), "") if key == "workspace" else self._forged(path):
            error = f"`{key}` has {path}, but the server itself could have made the link {link}"
            raise unavailable(error, problem="link", path=link)
        if secret := self._secret_behind(path):
            error = f"`{key}` has {path}, which leads to {secret}"
            raise unavailable(error, problem="link", path=path)
        return os.path.realpath(path)

    def _forged(self, path: str) -> str:
        """The first link in a path that the server could have made; empty if there is none."""
        writable = (*self._writable, os.path.realpath(self._around.data))
        for link in _links(path):
            holder = os.path.realpath(os.path.dirname(link))  # noqa: PTH120
            if any(is_within(holder, each) for each in writable):
                return link
        return ""

    def _secret_behind(self, path: str) -> str:
        """The hidden place that a harmless-looking path reaches by links; empty if it reaches none."""
        is_named = self._hidden_above(os.path.normpath(path))
        return "" if is_named else self._hidden_above(os.path.realpath(path))

    def _missing(self, written: str, key: str) -> CannotStart:
        return unavailable(f"`{key}` has {written}, which does not exist", problem="path", path=written)

    def _absolute(self, written: str) -> str:
        return os.path.join(self._cwd, written)  # noqa: PTH118


def _sound(written: tuple[str, ...]) -> Iterator[str]:
    return (each for each in written if WORKSPACE not in each)


def _listed(directory: str) -> list[str]:
    """The entries of a directory, without dot files, which are locks and caches."""
    with suppress(OSError), os.scandir(directory) as found:
        return [each.path for each in found if not each.name.startswith(".")]
    return []


def _links(path: str) -> Iterator[str]:
    """The symbolic links in a path and in these links' targets."""
    waiting, seen = [path], set[str]()
    while waiting:
        at = waiting.pop()
        while at not in {"/", ""}:
            if os.path.islink(at) and at not in seen:  # noqa: PTH114
                seen.add(at)
                yield at
                waiting.append(os.path.join(os.path.dirname(at), os.readlink(at)))  # noqa: PTH115, PTH118, PTH120
            at = os.path.dirname(at)  # noqa: PTH120


def _installed(program: str, shared: Container[str], forged: Callable[[str], str]) -> Iterator[str]:
    """The directories and files of a program: the directory around its `bin`, unless that is `shared`."""
    for each in (program, *_links(program), os.path.realpath(program)):
        directory = os.path.dirname(each)  # noqa: PTH120
        holder = os.path.realpath(os.path.dirname(directory))  # noqa: PTH120
        if os.path.basename(directory) in {"bin", ".bin"} and holder not in shared:  # noqa: PTH119
            yield holder
            if os.path.isfile(f"{holder}/pyvenv.cfg") and not forged(f"{directory}/python"):  # noqa: PTH113
                base = os.path.realpath(f"{directory}/python")
                yield os.path.dirname(os.path.dirname(base))  # noqa: PTH120
        else:
            yield os.path.realpath(each)
            # uvx starts the program uv that lies next to it.
            if os.path.basename(each) == "uvx" and os.path.isfile(f"{directory}/uv"):  # noqa: PTH113, PTH119
                yield os.path.realpath(f"{directory}/uv")
