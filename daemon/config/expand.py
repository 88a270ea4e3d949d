"""Resolves references such as ${VAR}, and edits the files that hold variables. No fault quotes a value."""

from __future__ import annotations

import errno
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from daemon.config.config_model import WORKSPACE
from daemon.config.jsonc import below, sound
from daemon.config.redaction import is_setting, names_credential
from daemon.errors import Fault
from daemon.kit.later import pattern
from daemon.kit.wording import quoted
from daemon.safety.redact import nested

_IGNORED = pattern(r"[ \t]*(?:[#;][^\n]*)?(?:\n|\Z)")
_ASSIGNMENT = pattern(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*=
        (?P<quoted>(?:[ \t]*(?:'[^']*+'|"(?:[^"\\]|\\.)*+"))*+)[ \t]*
        (?P<plain>(?:[^\\\n]|\\.)*+)(?:\n|\Z)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)

_QUOTED = pattern(r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ESCAPED = pattern(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = pattern(r'\\(["\\$`\n])')
_TO_ESCAPE = pattern(r'["\\$`]')
_BARE = pattern(r"[\w./:@%+,=-]+", re.ASCII)


def read_env(text: str) -> dict[str, str]:
    """Read variables as systemd.exec(5) reads an `EnvironmentFile=`, and allow `export`. Raises ValueError."""
    return {found["name"]: _value(found) for found in _assignments(_unix(text))}


def with_variable(text: str, name: str, value: str) -> str:
    """Set a variable in a variable file's text: in its last assignment, or in a new line. Raises ValueError."""
    if "\0" in value or "\r" in value:
        raise ValueError("a value in a file of variables must not hold a NUL or a carriage return")
    text = _unix(text)
    written = value if _BARE.fullmatch(value) else '"' + _TO_ESCAPE.sub(r"\\\g<0>", value) + '"'
    line = f"{name}={written}\n"
    # The last one counts.
    places = [found.span() for found in _assignments(text) if found["name"] == name]
    if places:
        start, end = places[-1]
        return text[:start] + line + text[end:]
    return text + ("\n" if text and not text.endswith("\n") else "") + line


def without_variable(text: str, name: str) -> str:
    """Remove a variable from a variable file's text, but keep comments. Raises ValueError."""
    text = _unix(text)
    for start, end in reversed([found.span() for found in _assignments(text) if found["name"] == name]):
        text = text[:start] + text[end:]
    return text


def _unix(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _assignments(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        found = _ASSIGNMENT.match(text, at)
        if found is not None and not found["plain"].startswith(("'", '"')):
            yield found
        elif (passed := _IGNORED.match(text, at)) is not None:
            found = passed
        else:
            line = text.count("\n", 0, at) + 1
            what = "is not KEY=VALUE" if found is None else "begins a quote that does not end"
            raise ValueError(f"line {line} {what}")
        at = found.end()


def _value(found: re.Match[str]) -> str:
    parts = [
        each["single"] if each["double"] is None else _ESCAPED_IN_QUOTES.sub(_unescaped, each["double"])
        for each in _QUOTED.finditer(found["quoted"])
    ]
    return "".join(parts) + _ESCAPED.sub(_unescaped, found["plain"].rstrip(" \t"))


def _unescaped(escape: re.Match[str]) -> str:
    return escape[1].replace("\n", "")


MAX_FILE = 64 * 1024
"""Most bytes of a referenced file: a key or token fits, a log named by mistake does not."""

_REFERENCE = pattern(r"(?P<literal>\$\$\{)|\$\{(?P<body>[^}]*)\}|(?P<open>\$\{)")
_VARIABLE = pattern(r"(?P<name>[A-Za-z_]\w*)?(?P<fallback>:-(?P<default>.*))?", re.ASCII | re.DOTALL)
_NO_VARIABLE = pattern(r"[^A-Za-z0-9]+")
_CREDENTIAL = pattern(r"[\w@.-]*[\w@-][\w@.-]*", re.ASCII)
_LATE = pattern(r"(?:run|keyring):(?!-)")  # ${run:-text} is a variable with a default
SECRET = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

ENV_FILE = "env"
"""The variable file next to the configuration, which mostly holds secrets."""

_FORMS = "write ${VAR}, ${VAR:-default}, ${file:PATH} or ${credential:NAME}; $${ is a literal ${"

SERVER_KEYS = ("command", "args", "env", "envFile", "cwd", "url", "headers", "oauth", "auth", "sandbox")
"""A server's keys that may hold references."""

_OF_HOME = ("command", "args", "cwd", "sandbox")
"""Keys in which a leading `~` means the home directory."""

_OF_WORKSPACES = ("command", "args", "env", "cwd", "sandbox")
"""Keys that may hold ${workspace}: they configure a process or its sandbox."""

_LATE_FORMS = "write ${keyring:NAME} or ${run:COMMAND ARGUMENTS}: quotes must end, and a } ends the reference"
_NOT_LATE = "only args, env, headers, url and auth.clientSecret of a server hold ${run:...} and ${keyring:...}"
_OF_RUNS = ("args", "env", "headers", "url")
"""Keys of a server that may hold ${run:...} and ${keyring:...}, besides `auth.clientSecret`."""

HTTP_KEYS = ("tokens", "tls")


class Unresolved(ValueError):
    """A reference cannot be resolved; the text gives reason and remedy."""

    def __init__(self, message: str, variable: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        """The environment variable, if it is not set; None for other reasons."""


@attrs.frozen(kw_only=True)
class Sources:
    """The sources in which references are looked up."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    kept: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Values of the variable file, for names that the environment lacks. All are credentials."""
    base: Path
    read_file: Callable[[Path], str]


def read_file(path: Path) -> str:
    """The content of a regular UTF-8 file. Raises OSError and UnicodeDecodeError."""
    # Checked before opening: opening a FIFO would wait for a writer.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE // 1024} KiB")
    return content.decode()


@attrs.frozen
class References:
    """Resolves the references in a part of a configuration, and collects their values."""

    _sources: Sources
    _faults: list[Fault] = attrs.field(repr=False)
    """Gets a fault for each unresolved reference, which stays in its text."""
    values: set[str] = attrs.field(factory=set, repr=False)
    server: str = ""
    """The server whose entry has the references; empty for another part."""
    credentials: set[str] = attrs.field(factory=set, repr=False)
    """Values or defaults that may be credentials, judged by kind of reference, name and appearance."""

    def within(self, raw: Mapping[str, Any], trail: str, keys: Collection[str] = SERVER_KEYS) -> dict[str, Any]:
        """Resolve the references in some keys of an object, by default a server's entry."""
        expanded = {key: self._visit(raw[key], below(trail, key), key) for key in raw if key in keys}
        return {**raw, **expanded}

    def _visit(self, value: object, here: str, key: str) -> object:
        if isinstance(value, list):
            return [self._visit(item, below(here, index), key) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._visit(item, below(here, name), key) for name, item in value.items()}
        if not isinstance(value, str):
            return value
        late = self.server and (key in _OF_RUNS or here.endswith(".auth.clientSecret"))
        text = self.text(value, here, workspaces=key in _OF_WORKSPACES, late=bool(late))
        home = self._sources.environ.get("HOME")
        if home and key in _OF_HOME and (value == "~" or value.startswith("~/")):
            return home + text.removeprefix("~")
        return text

    def text(self, text: str, here: str, *, workspaces: bool = False, late: bool = False) -> str:
        """Resolve references; `workspaces` and values looked up `late` (run, keyring) become marks."""

        def replace(match: re.Match[str]) -> str:
            body = match["body"] or ""
            if workspaces and body in _WORKSPACES:
                return WORKSPACE
            try:
                if _LATE.match(body):
                    return _marked(body, late=late)
                value, from_outside = _look_up(match, self._sources)
            except Unresolved as error:
                command = f"`mcpd set {self.server} env.{error.variable}`"
                helps = (
                    f". {command} asks for its value and stores it" if self.server and error.variable else ""
                )
                self._faults.append(Fault(path=here, message=f"{error}{helps}", variable=error.variable))
                return match[0]
            if from_outside:
                self.values.add(value)
            self._judge(body.removeprefix("env:"), value)
            return value

        return _REFERENCE.sub(replace, text)

    def _judge(self, body: str, value: str) -> None:
        name, sources = body.partition(":")[0], self._sources
        apart = name in _KEPT_APART or (name in sources.kept and name not in sources.environ)
        if body and (apart or names_credential(name) or not is_setting(value)):
            self.credentials.add(value)
        if apart:
            self.credentials.update(text for _, text in nested(value))

    def with_env_file(self, raw: Mapping[str, Any], trail: str) -> dict[str, Any]:
        """Merge the variables of `envFile` into `env`, which takes precedence."""
        path, env = raw.get("envFile"), raw.get("env", {})
        if not isinstance(path, str) or not isinstance(env, dict):
            return dict(raw)
        try:
            variables = read_env(_file(path, self._sources))
        except ValueError as error:  # `Unresolved` is one, too
            named = str(error) if isinstance(error, Unresolved) else f"{path}: {error}"
            self._faults.append(Fault(path=below(trail, "envFile"), message=named))
            return dict(raw)
        self.values.update(variables.values())
        return {**raw, "env": {**variables, **env}}


def _marked(body: str, *, late: bool) -> str:
    kind, _, rest = body.partition(":")
    with suppress(ValueError):
        if late and "${" not in rest and (SECRET.fullmatch(rest) if kind == "keyring" else shlex.split(rest)):
            return f"\0{body}\0"
    raise Unresolved(_LATE_FORMS if late else _NOT_LATE)


def _look_up(match: re.Match[str], sources: Sources) -> tuple[str, bool]:
    if match["literal"]:
        return "${", False
    if match["open"]:
        raise Unresolved("a reference begins with ${ and does not end: } is missing ($${ is a literal ${)")
    body = match["body"]
    kind, colon, rest = body.partition(":")
    if "${" in body:
        raise Unresolved("references cannot stand inside references: write one after the other")
    if body in {"/", "pathSeparator"}:  # clients' words for what separates the parts of a path
        return "/", False
    if colon and kind in _LOOK_UPS:
        return _checked(_LOOK_UPS[kind](rest, sources), body), True
    return _variable(body, sources)


def _variable(body: str, sources: Sources) -> tuple[str, bool]:
    match = _VARIABLE.fullmatch(body)
    if match is None or not body:
        raise Unresolved(f"cannot understand ${{{_shown(body)}}}: {_FORMS}")
    name = match["name"]
    if name is None:  # ${:-text} is the text, whatever it would mean elsewhere
        return match["default"], False
    if hint := _NOT_VARIABLES.get(name):
        raise Unresolved(hint)
    name = _OTHER_NAMES.get(name, name)
    value = sources.environ.get(name, sources.kept.get(name))
    # As in a shell, :- applies to empty variables, too.
    if match["fallback"] and not value:
        return match["default"], False
    if value is None:
        message = (
            f"environment variable {name} is not set; export it, put a line {name}=... into"
            f" {sources.base / ENV_FILE}, or give it a default"
        )
        raise Unresolved(message, variable=name)
    return _checked(value, body), True


def _shown(body: str) -> str:
    """The part of a reference that a fault may quote; a default may be a secret."""
    name, separator, _ = body.partition(":-")
    return quoted(name)[1:-1] + (":-…" if separator else "")


def _checked(value: str, body: str) -> str:
    if not sound(value):
        raise Unresolved(f"the value of ${{{_shown(body)}}} holds a NUL or half a character")
    return value


def _file(path: str, sources: Sources) -> str:
    home = sources.environ.get("HOME")
    if path.startswith("~/") and home:
        path = f"{home}/{path.removeprefix('~/')}"
    return _content(sources.base / path, sources)


def _credential(name: str, sources: Sources) -> str:
    if not _CREDENTIAL.fullmatch(name):
        raise Unresolved(f"'{name}' cannot be the name of a credential: write a file name without slashes")
    directory = sources.environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise Unresolved(
            f"credential {name} cannot be read: $CREDENTIALS_DIRECTORY is not set; run mcpd under systemd with "
            f"LoadCredential={name}:/path, or write ${{file:/path}}"
        )
    return _content(Path(directory) / name, sources)


def _content(path: Path, sources: Sources) -> str:
    if not sound(str(path)):
        raise Unresolved("the path of a file to read holds a NUL or half a character: remove it")
    try:
        if not sound(text := sources.read_file(path).strip()):
            # In a file of variables, it would make a mark of a reference that nobody wrote.
            raise Unresolved(f"cannot read {path}: it holds a NUL")
    except UnicodeError:
        # The error's own text quotes the bytes.
        raise Unresolved(f"cannot read {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise Unresolved(f"cannot read {path}: {error.strerror or 'it failed'}") from None
    return text


def variable_of(words: str) -> str:
    """Make a variable's name from another name: `X-Api-Key` becomes `X_API_KEY`."""
    name = _NO_VARIABLE.sub("_", words).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def _input(name: str, sources: Sources) -> str:
    variable = variable_of(name)
    raise Unresolved(
        f"mcpd cannot ask the user for '{name}' while it starts: put the value into {sources.base / ENV_FILE},"
        f" as a line {variable}=..., and write ${{{variable}}} here"
    )


_WORKSPACES = {"workspace", "workspaceFolder", "workspaceRoot"}

_WORKSPACE_ELSEWHERE = (
    "${workspace}, the directory that a client works in, can stand in command, args, env, cwd and sandbox of a"
    " server, and has no default; $${workspace} is the text itself"
)

_NOT_VARIABLES = {
    **dict.fromkeys(_WORKSPACES, _WORKSPACE_ELSEWHERE),
    "workspaceFolderBasename": "mcpd knows only the client's whole directory: write ${workspace}",
}

_OTHER_NAMES = {"userHome": "HOME"}

_LOOK_UPS: Mapping[str, Callable[[str, Sources], str]] = {
    "file": _file,
    "credential": _credential,
    "input": _input,
    "env": lambda body, sources: _variable(body, sources)[0],
}


_KEPT_APART = frozenset({"file", "credential"})
"""Kinds of references whose sources hold only secrets."""
