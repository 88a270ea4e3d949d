"""The files of a configuration: who else can write them, and profiles in files of their own.

A configuration names the programs that run as us, so nobody else may write it. As with sshd's StrictModes, that
is checked for the file, for every link that leads to it and for every directory above. Unlike there, owners
matter to root only, and in sticky directories; a group may write if it is one of ours or the owner's private
one, because many distributions create a group per user. `mcpd doctor` warns of owners and of shared groups.

Root obeys root's files alone (`sudo -E mcpd run` would run a user's programs as root). A container's root reads
its user's file from a read-only mount; root of a user namespace of its own is no more than its user.

`profiles.d/NAME.json` beside the configuration is the profile NAME; `env` beside it holds variables.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from daemon.config.expand import ENV_FILE, read_env, read_file
from daemon.config.jsonc import ROOT, below, decode, is_within, placed
from daemon.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


MAX_LINKS = 40
"""Most symbolic links followed: as many as the kernel follows (path_resolution(7))."""

_UID_MAP, _ALL_USERS = Path("/proc/self/uid_map"), ["0", "0", "4294967295"]
"""Which users a process knows, and what stands there outside of user namespaces (user_namespaces(7))."""

_WHY = "and with it have mcpd run any program as this user, so nothing was read:"


def open_to_others(path: Path) -> list[Fault]:
    """A fault for everything others can write or replace on the path that decides which file is read.

    Raises:
        OSError: a part of the path cannot be examined.
    """
    steps = [*reversed(dict.fromkeys(_steps_to(path)))]
    faults = [Fault(path=ROOT, message=message) for each in steps for message in _openings(each)]
    foreign = next((each for each in steps if _is_not_for_root(each)), None)
    if foreign is not None:
        owner = foreign.lstat().st_uid
        message = (
            f"user {owner} owns {foreign}, and root obeys no other user's configuration, so nothing was read: "
            f"run this as that user (`sudo -u '#{owner}' …`), or keep a configuration in a place of root's"
        )
        faults.append(Fault(path=ROOT, message=message))
    return faults


def _is_not_for_root(path: Path) -> bool:
    """Whether we are root, and another user owns a step of the way and can change it."""
    if os.geteuid() or not path.lstat().st_uid or _is_fixed(path.parent):
        return False
    return _UID_MAP.read_text().split() == _ALL_USERS


def _steps_to(path: Path) -> Iterator[Path]:
    """Every directory, every symbolic link and the file, in the order in which the kernel visits them."""
    at, links = Path("/"), 0
    ahead = [*reversed(path.absolute().parts[1:])]
    yield at
    while ahead:
        name = ahead.pop()
        step = at.parent if name == ".." else at / name
        yield step
        if not step.is_symlink():
            at = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        at = Path("/") if target.is_absolute() else at
        ahead += reversed(target.parts[target.is_absolute() :])


def _openings(path: Path) -> Iterator[str]:
    """How others can write a file, or replace what is in a directory, and how to prevent it."""
    found = path.lstat()
    above = path.parent.stat().st_mode
    shared = above & stat.S_ISVTX and above & stat.S_IWOTH
    if shared and found.st_uid not in {0, os.geteuid()} and not _is_fixed(path.parent):
        owner = f"user {found.st_uid} owns {path} in a directory that every user can write"
        yield f"{owner}, may replace it {_WHY} move it to a directory of your own"
    for who, change in _writers(path, found):
        yield (
            f"{who} can write {path}, {_WHY} `chmod {change} {path}`, or where modes are fixed"
            " (WSL's /mnt/c, vfat) move the configuration to your home directory"
        )


def _writers(path: Path, found: os.stat_result) -> Iterator[tuple[str, str]]:
    """Who else can write, and the change of mode that prevents it."""
    mode = found.st_mode
    # In a sticky directory such as /tmp others can write, but cannot replace our files.
    if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)):
        return
    ours = {0, found.st_uid, os.getegid(), *os.getgroups()}
    everybody, group = mode & stat.S_IWOTH, mode & stat.S_IWGRP and found.st_gid not in ours
    if not (everybody or group) or _is_fixed(path):
        return
    yield ("every user of this machine", "o-w") if everybody else (f"group {found.st_gid}", "g-w")


def _is_fixed(path: Path) -> bool:
    """Whether the file system is read-only: a Kubernetes ConfigMap is such a directory with mode 777."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


FOLDER = "profiles.d"

MAX_FILES = 256
"""Most files read: more profiles than anyone has; a folder with more was meant for something else."""

MAX_BYTES = 1 << 20
"""Most bytes of one file: a profile with a long text has a few thousand."""


@attrs.define
class ProfileFiles:
    """The content of `profiles.d`."""

    profiles: dict[str, object] = attrs.field(factory=dict)
    """The decoded profiles by name, not yet checked."""
    faults: list[Fault] = attrs.field(factory=list)
    """Faults of files that could not be read."""
    texts: dict[str, str] = attrs.field(factory=dict, repr=False)
    """The text of each profile's file."""

    def put(self, path: Path, text: str) -> None:
        """Take a text for what the file of a profile holds.

        Raises:
            ConfigError: it is no JSON.
        """
        profile, odd = decode(text, source=str(path))
        self.profiles[path.stem], self.texts[path.stem] = profile, text
        self.faults += [
            attrs.evolve(fault, path=f"{_place(path.stem)} {fault.path}") for fault in placed(odd, text)
        ]

    def beside(self, written: Collection[str], source: str) -> list[Fault]:
        """Faults of profiles that have a file although the configuration defines them, too.

        Args:
            written: the names of the configuration's own profiles.
            source: the path of the configuration.
        """
        trail = below(ROOT, "profiles")
        return [
            Fault(
                path=_place(name),
                message=f"{source} has this profile, too, at {below(trail, name)}: keep it in only one of them",
            )
            for name in self.profiles
            if name in written
        ]

    def placed(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults, with the file's name in the path of those within a profile that has a file."""
        return [self._placed(fault) for fault in faults]

    def _placed(self, fault: Fault) -> Fault:
        for name in self.profiles:
            trail = below(below(ROOT, "profiles"), name)
            if is_within(fault.path, trail):
                inner = attrs.evolve(fault, path=f"{ROOT}{fault.path.removeprefix(trail)}")
                (within,) = placed([inner], self.texts[name])
                return attrs.evolve(within, path=f"{_place(name)} {within.path}")
        return fault


def files_beside(config: Path) -> list[Path]:
    """The files that belong to a configuration: its profiles, and its variables if there are any.

    Raises:
        OSError: the folder of profiles cannot be listed.
    """
    variables = config.parent / ENV_FILE
    return [*_profiles_beside(config), *([variables] if variables.exists() else [])]


def _profiles_beside(config: Path) -> list[Path]:
    """The profile files that belong to a configuration, sorted by name; none without a folder.

    Names that begin with a dot are skipped: lock files of editors, metadata that macOS keeps beside a file.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        beside = (config.parent / FOLDER).iterdir()
        return sorted(path for path in beside if path.suffix == ".json" and not path.name.startswith("."))
    except FileNotFoundError:
        return []


def read_beside(config: Path) -> ProfileFiles:
    """Read the profiles in files of their own beside a configuration."""
    found = ProfileFiles()
    try:
        paths = _profiles_beside(config)
    except OSError as error:
        found.faults.append(Fault(path=FOLDER, message=f"cannot be looked into: {error.strerror}"))
        return found
    if len(paths) > MAX_FILES:
        message = f"{len(paths)} files: {MAX_FILES} are read at most, so this is no folder of profiles"
        found.faults.append(Fault(path=FOLDER, message=message))
    for path in paths[:MAX_FILES]:
        _read(path, found)
    return found


def _read(path: Path, found: ProfileFiles) -> None:
    place = _place(path.stem)
    try:
        if opened := open_to_others(path):
            found.faults += [attrs.evolve(fault, path=place) for fault in opened]
            return
        content = _content(path)
        if content is None:
            message = "this is no regular file: put the profile's own here"
        elif len(content) > MAX_BYTES:
            message = f"larger than {MAX_BYTES // 1024} KiB: this is no profile"
        else:
            found.put(path, content.decode())
            return
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        message = "this is not UTF-8: save the file as UTF-8"
    except ConfigError as error:
        found.faults += [attrs.evolve(fault, path=f"{place} {fault.path}") for fault in error.faults]
        return
    found.faults.append(Fault(path=place, message=message))


def _content(path: Path) -> bytes | None:
    """The content of a file, up to one byte over the limit; None if it is not a regular file."""
    # Opened without blocking and checked afterwards: opening a pipe without a writer would wait forever.
    with open(path, "rb", opener=at_once) as file:
        return file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def at_once(path: str, flags: int) -> int:
    """Open a file, a pipe without waiting for whoever will write into it; for `open(opener=)`."""
    return os.open(path, flags | os.O_NONBLOCK)


def _place(name: str) -> str:
    return f"{FOLDER}/{name}.json"


@attrs.frozen(kw_only=True)
class EnvFile:
    """The file `env` beside a configuration."""

    values: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Its variables: all of them are credentials."""
    faults: tuple[Fault, ...] = ()
    """Why it was not read."""
    notes: tuple[Fault, ...] = ()
    """What is unwise about it."""


def read_env_beside(config: Path) -> EnvFile:
    """Read the variables that are kept beside a configuration; none without such a file."""
    path = config.parent / ENV_FILE
    try:
        if faults := open_to_others(path):
            return EnvFile(faults=tuple(attrs.evolve(fault, path=ENV_FILE) for fault in faults))
        values = read_env(read_file(path))
        mode = path.stat().st_mode
    except FileNotFoundError:
        return EnvFile()
    except UnicodeDecodeError:
        message = "this is not UTF-8: save the file as UTF-8"
    except ValueError as error:
        message = f"{error}: write NAME=VALUE, or a # before a comment"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    else:
        # What a read-only file system says of modes cannot be changed there (Kubernetes).
        shown = mode & (stat.S_IRGRP | stat.S_IROTH) and not _is_fixed(path)
        message = f"other users can read what is kept here: `chmod 600 {path}`"
        return EnvFile(values=values, notes=(Fault(path=ENV_FILE, message=message),) if shown else ())
    return EnvFile(faults=(Fault(path=ENV_FILE, message=message),))
