"""Moves secrets from entries into variables of one server, `SERVER__NAME`, which no other server reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from daemon.config.expand import variable_of, with_variable
from daemon.config.redaction import in_arguments, names_credential
from daemon.documents.edited import EditedText, Trail, value_at, with_texts
from daemon.documents.files import DocumentError
from daemon.documents.formats import Format, read_document
from daemon.setup.drafts import KEYRING, Draft, Present, changed

_REFERENCES = re.compile(r"(\$\{[^}]*\})")
_ASKED = re.compile(r"(?<!\$)\$\{input:([^}]+)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAMED = re.compile(r"-{0,2}(?P<name>[A-Za-z][\w.-]*)(?:=|:\s*)", re.ASCII)
_SCHEME = re.compile(r"(?:basic|bearer|token)\s+", re.IGNORECASE)
_OF_LOGINS = {"clientSecret": "CLIENT_SECRET", "privateKey": "PRIVATE_KEY"}
_LATE = ("auth", "clientSecret")
_PLACES = frozenset({"workspace", "workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "userHome"})

_LIKE_REFERENCES = re.compile(
    r"\$\{\{(?:(?!\$\{)[^}])*\}\}|\$\{(?:(?!\$\{)[^}])*\}?|(?<!\$)\{(?:env|file):[^{}]+\}|\A\$[A-Z][A-Z0-9_]{2,}\Z"
)
"""Matches texts that mcpd reads as references, even in other clients' spelling; nested ones match alone."""

_WITHIN = re.compile(r"(?<!\$)\{(?=(?:env|file):)")
"""Matches the start of another client's reference within escaped text: `${{file:PATH}`."""

_LITERAL = re.compile(r"\$\$\{|\$\{:-([^}]*)\}")

_WORDS = re.compile(r"\$\$\{|\$\{[^}]*\}")

_PROSE = frozenset({"name", "displayName", "title", "description"})

_OF_PROGRAMS = re.compile(
    r"(?:LD|DYLD|NODE|MCPD|XDG|SSL|LC|SYSTEMD)_\w*|PYTHON\w*|PERL5(?:LIB|OPT)|RUBY(?:LIB|OPT)|\w*_PROXY"
    r"|(?:JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS|GCONV_PATH|GLIBC_TUNABLES|BASH_ENV|ENV|IFS|GIT_SSH_COMMAND"
    r"|PATH|HOME|LANG|LANGUAGE|LOGNAME|USER|SHELL|TERM|TMPDIR",
    re.IGNORECASE,
)
"""Matches variables that loaders, interpreters, libraries and mcpd obey, from their manuals."""

SHOWN = "(a secret)"
"""Stands for a secret in an entry that is shown."""

LONGEST = 120
"""Characters of a secret's name in the keyring, without its number."""

_OTHERS = 100
"""Numbered variants of a name: more than a user has servers with one variable."""


@attrs.define(kw_only=True)
class Variables:
    """Variables that references may use, and those to store."""

    known: dict[str, str] = attrs.field(repr=False)
    """Values from the file `env`, then from the environment, with those in `kept`."""
    kept: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Values to store; those named `keyring:NAME` go into the keyring (`changed`)."""
    keyring: bool = False

    def keep(self, server: str, name: str, value: str, *, late: bool = True) -> str:
        """Make a reference to a value that is stored as SERVER__NAME, or in the keyring if looked up `late`.

        Raises ValueError if the file cannot hold the value, or all names are taken.
        """
        with_variable("", "NAME", value)
        plain = f"{variable_of(server)}__{name if _VARIABLE.fullmatch(name) else variable_of(name)}"
        plain = f"{KEYRING}{plain.lstrip('_')[:LONGEST]}" if self.keyring and late else plain
        names = (plain, *(f"{plain}_{number}" for number in range(2, _OTHERS)))
        free = next((each for each in names if self.known.get(each, value) == value), None)
        if free is None:
            raise ValueError(f"{_OTHERS - 1} other values of {plain} are kept: take fewer servers")
        if free not in self.known or not free.startswith(KEYRING):
            self.known[free] = self.kept[free] = value
        return f"${{{free}}}"


def is_read_by_programs(name: str) -> bool:
    """Whether programs obey the variable, so that its value must stay in the entry."""
    return _OF_PROGRAMS.fullmatch(name) is not None


def with_references(
    entry: Mapping[str, Any], name: str, hidden: Collection[str], variables: Variables
) -> dict[str, Any]:
    """Replace an entry's secrets (`hidden`) by references, and add them to `variables`."""
    made = dict(entry)
    secrets = sorted(hidden, key=len, reverse=True)

    def secret(key: str, value: object) -> str:
        """The value, if it is a secret without references; else empty."""
        said = _literal(value) or "" if isinstance(value, str) else ""
        return said if names_credential(key) or any(each in said for each in secrets) else ""

    env, headers, args = made.get("env"), made.get("headers"), made.get("args")
    if isinstance(env, dict):
        made["env"] = {
            key: variables.keep(name, key, said)
            if (said := secret(key, value)) and not is_read_by_programs(key)
            else value
            for key, value in env.items()
        }
    if isinstance(headers, dict):
        made["headers"] = {
            key: _header(name, key, said, variables) if (said := secret(key, value)) else value
            for key, value in headers.items()
        }
    for section in ("oauth", "auth"):
        if isinstance(written := made.get(section), dict):
            made[section] = {
                key: variables.keep(name, _OF_LOGINS[key], said, late=(section, key) == _LATE)
                if key in _OF_LOGINS and (said := secret(key, value))
                else value
                for key, value in written.items()
            }
    if isinstance(args, list) and all(isinstance(each, str) for each in args):
        made["args"] = _arguments(name, args, secrets, variables)
    if isinstance(url := made.get("url"), str):
        made["url"] = _without(url, secrets, lambda secret: variables.keep(name, "KEY", secret))
    return made


def with_kept(new: Any, was: Any, hidden: Collection[str]) -> Any:
    """Put the present secret in place of each `(a secret)`. Raises DocumentError if there is none."""
    if isinstance(new, dict):
        return {key: with_kept(each, value_at(was, (key,)), hidden) for key, each in new.items()}
    if isinstance(new, list):
        # By their order and options alone: other arguments may have come and gone.
        old = [each for each in _with_options(was) if any(map(str(each[1]).count, hidden))]
        left = iter(old if len(old) == sum(SHOWN in str(each) for each in new) else ())
        return [
            with_kept(each, dict([next(left, ("", None))]).get(option), hidden) if SHOWN in str(each) else each
            for option, each in _with_options(new)
        ]
    if not isinstance(new, str) or SHOWN not in new:
        return new
    is_its = isinstance(was, str) and (new == SHOWN or any(map(was.count, hidden)))
    if is_its and re.fullmatch(".+".join(map(re.escape, new.split(SHOWN))), was, re.DOTALL):
        return was
    raise DocumentError(f"`{SHOWN}` stands where the entry has no secret: write the value. Nothing was changed")


def _with_options(words: Any) -> Iterator[tuple[str, Any]]:
    """Each word, with the option whose value it is, or an empty text."""
    before = ""
    for word in words if isinstance(words, list) else ():
        yield "" if str(word).startswith("-") else before, word
        before = word if str(word).startswith("-") and "=" not in word else ""


def _literal(text: str) -> str | None:
    if "${" in _LITERAL.sub("", text):
        return None
    return _LITERAL.sub(lambda found: "${" if found[1] is None else found[1], text)


def in_our_words(value: Any, key: str, refers: str | None) -> Any:
    """Escape text in a client's value that only mcpd would read as a reference, unless it `refers`."""

    def escaped(found: re.Match[str]) -> str:
        text = found[0]
        if refers is not None and re.fullmatch(refers, text):
            return text
        if text.startswith("${"):
            return f"${_WITHIN.sub('{${:-}', text)}"
        return f"${{:-$}}{text[1:]}" if text.startswith("$") else f"{{${{:-{text[1:]}}}"

    return value if key in _PROSE else with_texts(value, lambda text: _LIKE_REFERENCES.sub(escaped, text))


def _arguments(server: str, args: list[str], secrets: Sequence[str], variables: Variables) -> list[str]:
    # By their place, short ones are secrets, too.
    placed: dict[int, list[str]] = {}
    for place, value in in_arguments(args):
        placed.setdefault(place, []).append(value)

    def kept_as(name: str) -> Callable[[str], str]:
        return lambda secret: variables.keep(server, name, secret)

    return [
        _without(word, [*placed.get(place, ()), *secrets], kept_as(_name_of(args, place)))
        for place, word in enumerate(args)
    ]


def asked_as_variables(value: Any) -> Any:
    """Turn a client's prompts into variables: `${input:api-key}` becomes `${API_KEY}`."""
    return with_texts(value, lambda text: _ASKED.sub(lambda match: f"${{{variable_of(match[1])}}}", text))


def refer(entry: Any, name: str, reference: str) -> Any:
    """Replace all references to a variable in an entry or value."""
    taken = {f"${{{name}}}", f"${{env:{name}}}"}

    def other(found: re.Match[str]) -> str:
        return reference if found[0] in taken else found[0]

    return with_texts(entry, lambda text: _WORDS.sub(other, text))


def references(entry: object) -> list[str]:
    """The variables that an entry needs, without those that have defaults."""
    texts = (_LITERAL.sub("", text) for _, text in _texts(entry, ()))
    bodies = (found[2:-1].removeprefix("env:") for text in texts for found in _REFERENCES.findall(text))
    return list(dict.fromkeys(each for each in bodies if _VARIABLE.fullmatch(each) and each not in _PLACES))


def _header(server: str, header: str, value: str, variables: Variables) -> str:
    scheme = _SCHEME.match(value)
    begin = scheme.end() if scheme else 0
    last = "token" if header.lower() == "authorization" else header
    return value[:begin] + variables.keep(server, variable_of(last), value[begin:])


def _without(text: str, secrets: Sequence[str], keep: Callable[[str], str]) -> str:
    literal = _literal(text)
    # Every second part is a reference, which may contain the same word.
    parts = before = _REFERENCES.split(text) if literal is None else [literal]
    for secret in secrets:
        made = []
        for number, part in enumerate(parts):
            pieces = [part] if number % 2 else part.split(secret)
            made += [pieces[0], *(each for piece in pieces[1:] for each in (keep(secret), piece))]
        parts = made
    if parts == before:
        return text
    if literal is not None:
        parts[::2] = [in_our_words(part, "", None) for part in parts[::2]]
    return "".join(parts)


def _name_of(args: Sequence[object], place: int) -> str:
    """Name a secret argument after its option or variable."""
    before = str(args[place - 1]) if place else ""
    if named := _NAMED.match(str(args[place])):
        return variable_of(named["name"])
    return variable_of(before) if before.startswith("-") else "SECRET"


_REFERENCE = re.compile(
    r"\$\$\{|\$\{(?:env:)?(?P<braced>[A-Za-z_]\w*)(?::-[^}]*)?\}|(?<!\$)\{env:(?P<open>\w+)\}"
    r"|\A\$(?P<whole>[A-Z]\w+)\Z",
    re.ASCII,
)


@attrs.frozen(kw_only=True)
class OwnVariables:
    """A plan that gives each server its own variables."""

    draft: Draft
    unused: tuple[str, ...]
    """The file's variables that no entry needs and that programs obey."""


def with_own_variables(present: Present, environ: Mapping[str, str]) -> OwnVariables:
    """Give each server its own SERVER__NAME variables, in both files. Raises ConfigError and DocumentError."""
    variables = Variables(known={**present.variables, **environ})
    moved: set[str] = set()
    used: set[str] = set()

    def change(document: EditedText) -> None:
        with document.together():
            for server, place in present.places.items():
                for trail, text in list(_texts(value_at(document.value(), place), place)):
                    if (other := _owned(text, server, present, variables, moved)) != text:
                        document.put(trail, other)
        used.update(name for trail, text in _texts(document.value(), ()) for name in _named(trail, text))

    change(read_document(present.config.text() or "{}", Format.JSON, source=str(present.config.path)))
    draft = changed(present, change, variables.kept, environ, removed=moved - used)
    rest = present.variables.keys() - moved - used
    return OwnVariables(draft=draft, unused=tuple(filter(is_read_by_programs, sorted(rest))))


def _owned(text: str, server: str, present: Present, variables: Variables, moved: set[str]) -> str:
    """Replace references in a text by the server's own variables; adds the old names to `moved`."""

    def other(found: re.Match[str]) -> str:
        name = found[found.lastgroup] if found.lastgroup else ""
        value = present.variables.get(name)
        if value is None or name.startswith(f"{variable_of(server)}__"):
            return found[0]
        moved.add(name)
        if is_read_by_programs(name):
            return str(in_our_words(value, "", None))
        return variables.keep(server, name, value)

    return _REFERENCE.sub(other, text)


def _named(trail: Trail, text: str) -> Iterator[str]:
    """The variables that a text refers to, or names where the key takes a name (`apiKeyEnv`)."""
    yield from (found[found.lastgroup] for found in _REFERENCE.finditer(text) if found.lastgroup)
    if "args" not in trail:
        yield text


def _texts(value: Any, trail: Trail) -> Iterator[tuple[Trail, str]]:
    if isinstance(value, str):
        yield trail, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in items:
        yield from _texts(each, (*trail, step))
