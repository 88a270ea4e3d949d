"""Secrets of an entry, moved out of it: into variables that it refers to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from daemon.config.credentials import in_arguments, names_credential
from daemon.config.env_file import with_variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_REFERENCES = re.compile(r"(\$\{[^}]*\})")
_ASKED = re.compile(r"\$\{input:([^}]+)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_VARIABLE = re.compile(r"[^A-Za-z0-9]+")
_NAMED = re.compile(r"-{0,2}(?P<name>[A-Za-z][\w.-]*)(?:=|:\s*)", re.ASCII)
_SCHEME = re.compile(r"(?:basic|bearer|token)\s+", re.IGNORECASE)
_CLIENT_SECRET = "clientSecret"  # noqa: S105 - a key
_PLACES = frozenset({"workspace", "workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "userHome"})
"""What references may name beside variables, in clients' words."""

_OTHERS = 100
"""Most variables that differ in a number only: more servers with the same variable than anyone has."""


@attrs.define(kw_only=True)
class Variables:
    """The variables that entries can refer to, and those that are to be kept for them."""

    known: dict[str, str] = attrs.field(repr=False)
    """Values by name: of the file `env`, then of the environment; those of `kept` are added."""
    kept: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Values that are to be written to the file `env`, by name."""

    def keep(self, name: str, value: str) -> str:
        """A reference to a value, under this name or, where that has another value, one with a number.

        Raises:
            ValueError: the file cannot hold it, or it has all these names already.
        """
        with_variable("", "NAME", value)
        plain = name if _VARIABLE.fullmatch(name) else variable(name)
        names = (plain, *(f"{plain}_{number}" for number in range(2, _OTHERS)))
        free = next((each for each in names if self.known.get(each, value) == value), None)
        if free is None:
            raise ValueError(f"{_OTHERS - 1} other values of {plain} are kept: take fewer servers")
        self.known[free] = self.kept[free] = value
        return f"${{{free}}}"


def variable(*parts: str) -> str:
    """The name of a variable made of words: `X-Api-Key` is `X_API_KEY`."""
    name = _NO_VARIABLE.sub("_", "_".join(parts)).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def with_references(
    entry: Mapping[str, Any], name: str, hidden: Collection[str], variables: Variables
) -> dict[str, Any]:
    """The entry with references in place of its secrets, which are added to `variables`.

    Args:
        entry: in mcpd's keys.
        name: the server's, for the names of variables.
        hidden: the texts in it that are secrets (`config.redaction.secrets_of`).
        variables: those there are.
    """
    made = dict(entry)
    secrets = sorted(hidden, key=len, reverse=True)

    def is_secret(key: str, value: object) -> bool:
        if not isinstance(value, str) or "${" in value:
            return False
        return (names_credential(key) and bool(value)) or any(each in value for each in secrets)

    env, headers, args = made.get("env"), made.get("headers"), made.get("args")
    if isinstance(env, dict):
        made["env"] = {
            key: variables.keep(key, value) if is_secret(key, value) else value for key, value in env.items()
        }
    if isinstance(headers, dict):
        made["headers"] = {
            key: _header(name, key, value, variables) if is_secret(key, value) else value
            for key, value in headers.items()
        }
    oauth = made.get("oauth")
    if isinstance(oauth, dict) and is_secret(_CLIENT_SECRET, oauth.get(_CLIENT_SECRET)):
        kept = variables.keep(variable(name, "client", "secret"), oauth[_CLIENT_SECRET])
        made["oauth"] = {**oauth, _CLIENT_SECRET: kept}
    if isinstance(args, list):
        made["args"] = _arguments(name, args, secrets, variables)
    if isinstance(url := made.get("url"), str):
        made["url"] = _without(url, secrets, variable(name, "key"), variables)
    return made


def _arguments(server: str, args: list[str], secrets: Sequence[str], variables: Variables) -> list[str]:
    # By their place, short ones are secrets, too.
    placed: dict[int, list[str]] = {}
    for at, value in in_arguments(args):
        placed.setdefault(at, []).append(value)
    return [
        _without(word, [*placed.get(at, ()), *secrets], _name_of(server, args, at), variables)
        for at, word in enumerate(args)
    ]


def asked_as_variables(value: Any) -> Any:
    """References to what a client asks its user for, as variables: `${input:api-key}` is `${API_KEY}`."""
    if isinstance(value, str):
        return _ASKED.sub(lambda match: f"${{{variable(match[1])}}}", value)
    if isinstance(value, dict):
        return {key: asked_as_variables(item) for key, item in value.items()}
    return [asked_as_variables(item) for item in value] if isinstance(value, list) else value


def references(entry: object) -> list[str]:
    """The variables that an entry refers to without a default, each once."""
    match entry:
        case str():
            bodies = (
                found[2:-1].removeprefix("env:") for found in _REFERENCES.findall(entry.replace("$${", ""))
            )
            found = [body for body in bodies if _VARIABLE.fullmatch(body) and body not in _PLACES]
        case dict() | list():
            items: Iterable[object] = entry.values() if isinstance(entry, dict) else entry
            found = [name for item in items for name in references(item)]
        case _:
            found = []
    return list(dict.fromkeys(found))


def _header(server: str, header: str, value: str, variables: Variables) -> str:
    """A header's value with a reference behind its scheme: `Bearer ${NOTION_TOKEN}`."""
    scheme = _SCHEME.match(value)
    begin = scheme.end() if scheme else 0
    last = "token" if header.lower() == "authorization" else header
    return value[:begin] + variables.keep(variable(server, last), value[begin:])


def _without(text: str, secrets: Sequence[str], name: str, variables: Variables) -> str:
    """A text with a reference in place of each secret that stands in it."""
    for secret in secrets:
        parts = _REFERENCES.split(text)
        # Every second part is a reference, which may contain the same word.
        parts[::2] = [
            part.replace(secret, variables.keep(name, secret)) if secret in part else part
            for part in parts[::2]
        ]
        text = "".join(parts)
    return text


def _name_of(server: str, args: Sequence[object], at: int) -> str:
    """The variable for a secret among arguments: after its option, or the variable that it is given to."""
    before = str(args[at - 1]) if at else ""
    if named := _NAMED.match(str(args[at])):
        own = named["name"]
        # `docker run -e API_KEY=...`: it has a name already.
        return own if own.isupper() and names_credential(own) else variable(server, own)
    return variable(server, before.lstrip("-")) if before.startswith("-") else variable(server, "secret")
