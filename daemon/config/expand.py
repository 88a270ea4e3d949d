"""References to values that do not belong in the file itself.

They are `${VAR}`, `${VAR:-default}`, `${file:PATH}` and `${credential:NAME}`; `$${` is a literal `${`. The
value of a reference is recorded, so that logs can leave it out, and never appears in a fault: faults end up in
terminals, journals and bug reports. What `${workspace}` stands for is known only once a client is there: until
then a mark takes its place.
"""

from __future__ import annotations

import errno
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.credentials import is_setting, names_credential
from daemon.config.jsonc import below, sound
from daemon.config.sharing import WORKSPACE, WRITTEN
from daemon.errors import Fault
from daemon.kit.wording import quoted
from daemon.safety.shapes import nested

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MAX_FILE = 64 * 1024
"""Most bytes of a referenced file: a key or a token, not a log named by mistake."""

_REFERENCE = re.compile(r"(?P<literal>\$\$\{)|\$\{(?P<body>[^}]*)\}|(?P<open>\$\{)")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<fallback>:-(?P<default>.*))?", re.ASCII | re.DOTALL)
_CREDENTIAL = re.compile(r"[\w@.-]*[\w@-][\w@.-]*", re.ASCII)

_FORMS = "write ${VAR}, ${VAR:-default}, ${file:PATH} or ${credential:NAME}; $${ is a literal ${"

_EXPANDED = ("command", "args", "env", "cwd", "url", "headers", "oauth")
"""The keys of a server in which references are looked up."""

_OF_WORKSPACES = ("command", "args", "env", "cwd")
"""Those in which ${workspace} may stand: what a process is started with."""

_EXPANDED_OF_HTTP = ("tokens", "tls")
"""Those of `listen.http`."""


class Unresolved(ValueError):
    """A reference that cannot be resolved; the text says why and what to do."""

    def __init__(self, message: str, variable: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        """The environment variable that is not set, if that is the reason."""


@attrs.frozen(kw_only=True)
class Sources:
    """Where references are looked up."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    """Environment variables by name, which `${NAME}` refers to."""
    base: Path
    """The directory that relative paths start from: the configuration's."""
    read_file: Callable[[Path], str]
    """Reads a file."""


@attrs.frozen(kw_only=True)
class Expanded:
    """A text with its references resolved."""

    text: str = attrs.field(repr=False)
    """The text with the values of its references; one that cannot be resolved is left in place."""
    substituted: tuple[str, ...] = attrs.field(repr=False)
    """The values that came from outside the file."""
    credentials: tuple[str, ...] = attrs.field(repr=False)
    """Values of references that may be credentials: by kind, by name, or as they are not clearly settings."""
    problems: tuple[Unresolved, ...]
    """References that could not be resolved, and why."""


def read_file(path: Path) -> str:
    """The content of a regular file of UTF-8 text.

    Raises:
        OSError: it cannot be read, is larger than `MAX_FILE` or is not a regular file.
        UnicodeDecodeError: it is not UTF-8.
    """
    # Checked before opening: opening a FIFO would wait for a writer.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE // 1024} KiB")
    return content.decode()


def expand(text: str, sources: Sources, *, workspaces: bool = False) -> Expanded:
    """Look up every reference in `text`; in some places ${workspace} may be one of them (`workspaces`)."""
    substituted: list[str] = []
    credentials: list[str] = []
    problems: list[Unresolved] = []

    def replace(match: re.Match[str]) -> str:
        if workspaces and match[0] == WRITTEN:
            return WORKSPACE
        try:
            value, from_outside = _look_up(match, sources)
        except Unresolved as error:
            problems.append(error)
            return match[0]
        if from_outside:
            substituted.append(value)
        if match["body"] and (_names_credential(match["body"]) or not is_setting(value)):
            credentials.append(value)
        if match["body"] and _is_kept_apart(match["body"]):
            credentials.extend(text for _, text in nested(value))
        return value

    expanded = _REFERENCE.sub(replace, text)
    return Expanded(
        text=expanded,
        substituted=tuple(substituted),
        credentials=tuple(credentials),
        problems=tuple(problems),
    )


def _names_credential(body: str) -> bool:
    """Whether a reference names a credential: files are used for what should stay secret."""
    return _is_kept_apart(body) or names_credential(body.partition(":")[0])


def _is_kept_apart(body: str) -> bool:
    return body.partition(":")[0] in _KEPT_APART


def _look_up(match: re.Match[str], sources: Sources) -> tuple[str, bool]:
    """The value of a reference, and whether it came from outside the file."""
    if match["literal"]:
        return "${", False
    if match["open"]:
        raise Unresolved("a reference begins with ${ and does not end: } is missing ($${ is a literal ${)")
    body = match["body"]
    kind, colon, rest = body.partition(":")
    if "${" in body:
        raise Unresolved("references cannot stand inside references: write one after the other")
    if colon and kind in _LOOK_UPS:
        return _checked(_LOOK_UPS[kind](rest, sources), body), True
    return _variable(body, sources)


def _variable(body: str, sources: Sources) -> tuple[str, bool]:
    match = _VARIABLE.fullmatch(body)
    if match is None:
        raise Unresolved(f"cannot understand ${{{_shown(body)}}}: {_FORMS}")
    name = match["name"]
    if hint := _NOT_VARIABLES.get(name):
        raise Unresolved(hint)
    value = sources.environ.get(name)
    # As in a shell, :- applies to empty variables, too.
    if match["fallback"] and not value:
        return match["default"], False
    if value is None:
        message = f"environment variable {name} is not set; export it, or write ${{{name}:-default}}"
        raise Unresolved(message, variable=name)
    return _checked(value, body), True


def _shown(body: str) -> str:
    """The part of a reference that a fault may repeat: a default can be a secret."""
    name, separator, _ = body.partition(":-")
    return quoted(name)[1:-1] + (":-…" if separator else "")


def _checked(value: str, body: str) -> str:
    if not sound(value):
        raise Unresolved(f"what ${{{_shown(body)}}} stands for holds a NUL or half a character")
    return value


def _file(path: str, sources: Sources) -> str:
    home = sources.environ.get("HOME")
    if path.startswith("~/") and home:
        path = f"{home}/{path.removeprefix('~/')}"
    return _content(sources.base / path, sources)


def _credential(name: str, sources: Sources) -> str:
    if not _CREDENTIAL.fullmatch(name):
        raise Unresolved(f"'{name}' cannot be the name of a credential: it is a file name without slashes")
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
        return sources.read_file(path).strip()
    except UnicodeError:
        # The error's own text quotes the bytes.
        raise Unresolved(f"cannot read {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise Unresolved(f"cannot read {path}: {error.strerror or 'it failed'}") from None


def _input(name: str, _: Sources) -> str:
    raise Unresolved(f"mcpd cannot ask for '{name}' while it starts: export a variable and write ${{VAR}}")


def _env(name: str, _: Sources) -> str:
    raise Unresolved(f"write ${{{name}}} instead of ${{env:{name}}}")


_WORKSPACE_ELSEWHERE = (
    "${workspace}, the directory that a client works in, can stand in command, args, env and cwd of a server,"
    " and has no default; $${workspace} is the text itself"
)
_WORKSPACE_HERE = "write ${workspace} for the directory that a client works in"

_NOT_VARIABLES = {
    "workspace": _WORKSPACE_ELSEWHERE,
    "workspaceFolder": _WORKSPACE_HERE,
    "workspaceRoot": _WORKSPACE_HERE,
    "userHome": "write ${HOME}",
}
"""Names that clients, or mcpd itself, give to something else than a variable, with what to write."""

_LOOK_UPS: Mapping[str, Callable[[str, Sources], str]] = {
    "file": _file,
    "credential": _credential,
    "input": _input,
    "env": _env,
}


_KEPT_APART = frozenset({"file", "credential"})
"""Kinds of references to places that hold only secrets."""


def expand_server(
    raw: Mapping[str, Any], trail: str, sources: Sources, faults: list[Fault]
) -> tuple[dict[str, Any], frozenset[str], frozenset[str]]:
    """A server's entry with its references resolved, their values, and which of those are credentials.

    Values may have any type here; `structure` reports wrong ones later.
    """
    return _expand_keys(raw, _EXPANDED, trail, sources, faults)


def expand_http(
    raw: Mapping[str, Any], trail: str, sources: Sources, faults: list[Fault]
) -> tuple[dict[str, Any], frozenset[str]]:
    """The section `listen.http` with its references resolved, and their values."""
    expanded, found, _ = _expand_keys(raw, _EXPANDED_OF_HTTP, trail, sources, faults)
    return expanded, found


def _expand_keys(
    raw: Mapping[str, Any], keys: Collection[str], trail: str, sources: Sources, faults: list[Fault]
) -> tuple[dict[str, Any], frozenset[str], frozenset[str]]:
    found: set[str] = set()
    credentials: set[str] = set()

    def visit(value: object, here: str, key: str) -> object:
        if isinstance(value, str):
            result = expand(value, sources, workspaces=key in _OF_WORKSPACES)
            found.update(result.substituted)
            credentials.update(result.credentials)
            faults.extend(
                Fault(path=here, message=str(problem), variable=problem.variable) for problem in result.problems
            )
            return result.text
        if isinstance(value, list):
            return [visit(item, below(here, index), key) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: visit(item, below(here, name), key) for name, item in value.items()}
        return value

    expanded = {key: visit(value, below(trail, key), key) for key, value in raw.items() if key in keys}
    return {**raw, **expanded}, frozenset(found), frozenset(credentials)
