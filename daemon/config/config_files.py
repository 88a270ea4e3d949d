"""Reads a configuration's files, and refuses files that other users can write: they name programs to run.

The check covers links and parent directories, like sshd's StrictModes. Root accepts only root's files. A file
`scripts/NAME.py` next to the configuration defines a tool; mcpd parses it here but does not run it.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.util
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import attrs
import msgspec

from daemon.config.config_model import Category, Config, Server, TransportType
from daemon.config.expand import ENV_FILE, MAX_FILE, read_env
from daemon.config.jsonc import ROOT, below, decode, is_within, placed
from daemon.config.lock_file import LOCK, MAX_LOCK, Lock, lock_in
from daemon.errors import ConfigError, Fault

SCRIPT_SERVER = "script"

_ABOUT = "The user's own scripts."

MAX_CODE = 64 * 1024
"""Most bytes of one script: ten times a long one."""

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "None": "null"}
_KNOWN = "int, float, str, bool, None, list[T], dict[str, T], Literal['a', 1] or T | None"


def with_scripts(config: Config, path: Path) -> Config:
    """Add to a configuration the server whose tools are the scripts that profiles name."""
    names = {name for each in config.profiles.values() for name in each.scripts}
    if "*" in names:
        names = {*names, *(each.stem for each in path.parent.glob(SCRIPT_FILES))} - {"*"}
    if not names:
        return config
    why = f"{len(names)} scripts, of which {MAX_FILES} are read at most" if len(names) > MAX_FILES else ""
    if SCRIPT_SERVER in {*config.mcp_servers, *config.categories}:
        why = f"scripts are not offered while a server or category is named {SCRIPT_SERVER}: rename it"
    elif importlib.util.find_spec("pydantic_monty") is None:
        why = "scripts need the extra: pip install 'mcpd-supervisor[code]'"
    if why:
        return attrs.evolve(config, script_faults=(Fault(path=SCRIPTS, message=why),))
    scripts, faults = dict[str, tuple[str, bytes]](), tuple[Fault, ...]()
    for name in sorted(names):
        try:
            scripts[name] = _script(name, path.parent / SCRIPTS / f"{name}.py")
        except ConfigError as error:
            faults += tuple(attrs.evolve(each, path=f"{SCRIPTS}/{name}.py") for each in error.faults)
        except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            reason, line, column = (getattr(error, each, None) for each in ("msg", "lineno", "offset"))
            reason = reason or f"cannot be read: {error!r}"
            faults += (Fault(path=f"{SCRIPTS}/{name}.py", message=reason, line=line, column=column),)
    made = Server(
        name=SCRIPT_SERVER,
        description=_ABOUT,
        identity=SCRIPT_SERVER,
        type=TransportType.SCRIPT,
        scripts=scripts,
    )
    own = dict(config.categories)
    if own:
        own[SCRIPT_SERVER] = Category(name=SCRIPT_SERVER, description=_ABOUT, server=SCRIPT_SERVER)
    profiles = {
        name: attrs.evolve(each, categories=each.categories and (*each.categories, SCRIPT_SERVER))
        for name, each in config.profiles.items()
    }
    servers = {**config.mcp_servers, SCRIPT_SERVER: made}
    return attrs.evolve(config, mcp_servers=servers, categories=own, profiles=profiles, script_faults=faults)


def _script(name: str, path: Path) -> tuple[str, bytes]:
    """A script's code with a final call of `main`, and its tool. Raises SyntaxError and other faults."""
    if not (name.isidentifier() and name.isascii()) or path.is_symlink():
        raise SyntaxError("put a regular file here, not a link, with a name of letters, digits and _")
    tree = ast.parse(text := text_of(path, MAX_CODE, "script"))
    main = next((each for each in tree.body if getattr(each, "name", "") == "main"), None)
    if not (said := ast.get_docstring(tree)) or not isinstance(main, ast.FunctionDef | ast.AsyncFunctionDef):
        raise SyntaxError("write a docstring at the top, which describes the tool, and `async def main(...)`")
    # Trust compares what is called `definition` digit by digit (`catalog.forms`).
    meta = {"mcpd/script": {"definition": hashlib.sha256(text.encode()).hexdigest()}}
    tool = {"name": name, "description": said, "inputSchema": _arguments(main.args), "_meta": meta}
    awaits = "await " * isinstance(main, ast.AsyncFunctionDef)
    return f"{text}\n{awaits}main(**_mcpd_arguments)", msgspec.json.encode(tool)


def _arguments(given: ast.arguments) -> dict[str, object]:
    """The JSON Schema of the parameters of `main`. Raises SyntaxError."""
    if given.posonlyargs or given.vararg or given.kwarg:
        raise SyntaxError("callers name all arguments of `main`: write its parameters without *, ** and /")
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    properties: dict[str, dict[str, object]] = {}
    for each, default in zip((*given.args, *given.kwonlyargs), defaults, strict=True):
        try:
            properties[each.arg] = _schema(each.annotation)
            if default is not None:
                properties[each.arg]["default"] = ast.literal_eval(default)
        except ValueError:
            message = f"the type of {each.arg} must be {_KNOWN}, and its default a literal"
            raise SyntaxError(message, ("", each.lineno, each.col_offset + 1, None)) from None
    required = [name for name, each in properties.items() if "default" not in each]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(kind: ast.AST | None) -> dict[str, object]:
    match kind:
        case ast.Name(id=name) | ast.Constant(value=name) if str(name) in _TYPES:
            return {"type": _TYPES[str(name)]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return {"type": "array", "items": _schema(item)}
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[ast.Name(id="str"), item])):
            return {"type": "object", "additionalProperties": _schema(item)}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            return {"enum": [*map(ast.literal_eval, getattr(words, "elts", [words]))]}
    raise ValueError


MAX_LINKS = 40
"""Symbolic links to follow: the kernel's own limit (path_resolution(7))."""

_UID_MAP, _ALL_USERS = Path("/proc/self/uid_map"), ["0", "0", "4294967295"]
"""The uid map, and its content outside of user namespaces (user_namespaces(7))."""

_WHY = "and with it have mcpd run any program as this user, so nothing was read:"


def open_to_others(path: Path) -> list[Fault]:
    """A fault for each step on a file's path that others can write or replace. Raises OSError."""
    steps = [*reversed(dict.fromkeys(_steps_to(path)))]
    faults = [Fault(path=ROOT, message=message) for each in steps for message in _openings(each)]
    foreign = next((each for each in steps if _is_not_for_root(each)), None)
    if foreign is not None:
        owner = foreign.lstat().st_uid
        message = (
            f"user {owner} owns {foreign}, and root accepts no other user's configuration, so nothing was read:"
            f" run this as that user (`sudo -u '#{owner}' …`), or keep a configuration where only root can"
            " write"
        )
        faults.append(Fault(path=ROOT, message=message))
    return faults


def _is_not_for_root(path: Path) -> bool:
    """Whether this process is root, and another user owns this step of the path."""
    if os.geteuid() or not path.lstat().st_uid or _is_fixed(path.parent):
        return False
    return _UID_MAP.read_text().split() == _ALL_USERS


def _steps_to(path: Path) -> Iterator[Path]:
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
    """Describe how others can write or replace a path, each time with the remedy."""
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
    """Whether the file system is read-only, as for a Kubernetes ConfigMap, which has mode 777."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


FOLDER = "profiles.d"

SCRIPTS = "scripts"

SCRIPT_FILES = f"{SCRIPTS}/[!.]*.py"
"""All scripts, but not the hidden lock files of editors."""

MAX_FILES = 256
"""Files read from a directory; with more, the directory is probably not meant for mcpd."""

MAX_BYTES = 1 << 20
"""Bytes of one profile; one with long instructions has a few thousand."""


@attrs.define
class ProfileFiles:
    """The content of `profiles.d`: `profiles.d/NAME.json` defines the profile NAME."""

    profiles: dict[str, object] = attrs.field(factory=dict)
    faults: list[Fault] = attrs.field(factory=list)
    texts: dict[str, str] = attrs.field(factory=dict, repr=False)

    def put(self, path: Path, text: str) -> None:
        """Decode a profile's file. Raises ConfigError."""
        profile, odd = decode(text, source=str(path))
        self.profiles[path.stem], self.texts[path.stem] = profile, text
        # A text may come in place of a faulty one.
        self.faults = [each for each in self.faults if not each.path.startswith(_place(path.stem))]
        self.faults += [
            attrs.evolve(fault, path=f"{_place(path.stem)} {fault.path}") for fault in placed(odd, text)
        ]

    def duplicates(self, written: Collection[str], source: str) -> list[Fault]:
        """Faults of profiles that are defined in a file and in the configuration at `source`."""
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
        """Let faults inside a profile name the profile's own file."""
        return [self._placed(fault) for fault in faults]

    def _placed(self, fault: Fault) -> Fault:
        for name in self.profiles:
            trail = below(ROOT, "profiles", name)
            if is_within(fault.path, trail):
                inner = attrs.evolve(fault, path=f"{ROOT}{fault.path.removeprefix(trail)}")
                (within,) = placed([inner], self.texts[name])
                return attrs.evolve(within, path=f"{_place(name)} {within.path}")
        return fault


def files_of(config: Path) -> list[Path]:
    """The files next to a configuration: profiles, scripts, variable file and lock. Raises OSError."""
    others = (*sorted(config.parent.glob(SCRIPT_FILES)), *(config.parent / name for name in (ENV_FILE, LOCK)))
    return [*_profile_files(config), *(each for each in others if each.exists())]


def _profile_files(config: Path) -> list[Path]:
    """Skips hidden files: locks of editors and metadata of macOS."""
    try:
        found = (config.parent / FOLDER).iterdir()
        return sorted(path for path in found if path.suffix == ".json" and not path.name.startswith("."))
    except FileNotFoundError:
        return []


def read_profiles(config: Path) -> ProfileFiles:
    """Read `profiles.d` next to a configuration."""
    found = ProfileFiles()
    try:
        paths = _profile_files(config)
    except OSError as error:
        found.faults.append(Fault(path=FOLDER, message=f"cannot be listed: {error.strerror}"))
        return found
    if len(paths) > MAX_FILES:
        message = f"{len(paths)} files: {MAX_FILES} are read at most, so this is not a folder of profiles"
        found.faults.append(Fault(path=FOLDER, message=message))
    for path in paths[:MAX_FILES]:
        _read(path, found)
    return found


def _read(path: Path, found: ProfileFiles) -> None:
    try:
        found.put(path, text_of(path, MAX_BYTES, "profile"))
    except ConfigError as error:
        place = _place(path.stem)
        found.faults += (attrs.evolve(each, path=f"{place} {each.path}".strip()) for each in error.faults)


class NoFile(ConfigError):
    """Raised if the file does not exist."""


def text_of(path: Path, most: int, what: str, trail: str = "", *, waits: bool = False) -> str:
    """Read a file of at most `most` bytes that no other user can write; `waits` also reads a pipe.

    Raises `NoFile`, or `ConfigError` with faults at `trail`.
    """
    try:
        # Opened without blocking and checked afterwards: opening a pipe without a writer would wait forever.
        with open(path, "rb", opener=_at_once) as file:
            if opened := open_to_others(path):
                raise ConfigError(str(path), [attrs.evolve(fault, path=trail) for fault in opened])
            os.set_blocking(file.fileno(), True)
            is_fit = waits or stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(most + 1) if is_fit else b""
        if is_fit and len(content) <= most:
            return content.decode()
        message = f"larger than {most // 1024} KiB: this is not a {what}"
        if not is_fit:
            message = f"this is not a regular file: put the {what} itself here"
    except FileNotFoundError as error:
        raise NoFile(str(path), [Fault(path=trail, message=f"cannot be read: {error.strerror}")]) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        is_wide = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{'this is UTF-16' if is_wide else f'line {line} is not UTF-8'}: save the file as UTF-8"
    raise ConfigError(str(path), [Fault(path=trail, message=message)])


def _at_once(path: str, flags: int) -> int:
    """An `opener` that does not wait for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _place(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def read_lock(config: Path) -> Lock | None:
    """Read the lock next to a configuration; None without one."""
    try:
        return lock_in(text_of(config.parent / LOCK, MAX_LOCK, "lock").encode())
    except NoFile:
        return None
    except ConfigError as error:
        return Lock(problem=error.faults[0].message)


@attrs.frozen(kw_only=True)
class EnvFile:
    """The variables in the file `env` next to a configuration."""

    values: dict[str, str] = attrs.field(factory=dict, repr=False)
    faults: tuple[Fault, ...] = ()
    notes: tuple[Fault, ...] = ()


def read_env_file_of(config: Path) -> EnvFile:
    """Read the file `env` next to a configuration; without the file there are no variables."""
    path = config.parent / ENV_FILE
    try:
        values = read_env(text_of(path, MAX_FILE, "file of variables", ENV_FILE))
        mode = path.stat().st_mode
    except (NoFile, FileNotFoundError):
        return EnvFile()
    except ConfigError as error:
        return EnvFile(faults=error.faults)
    except ValueError as error:
        message = f"{error}: write NAME=VALUE, or a # before a comment"
    else:
        # What a read-only file system says of modes cannot be changed there (Kubernetes).
        shown = mode & (stat.S_IRGRP | stat.S_IROTH) and not _is_fixed(path)
        message = f"other users can read this file: `chmod 600 {path}`"
        return EnvFile(values=values, notes=(Fault(path=ENV_FILE, message=message),) if shown else ())
    return EnvFile(faults=(Fault(path=ENV_FILE, message=message),))
