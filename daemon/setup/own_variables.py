"""Gives each server of a configuration variables of its own, where servers share those in the file `env`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from daemon.documents.formats import Format, read_document
from daemon.setup.clients.installing import at
from daemon.setup.drafts import changed
from daemon.setup.moved_secrets import Variables, in_our_words, is_read_by_programs, variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.documents.edited import Trail
    from daemon.documents.formats import Document
    from daemon.setup.drafts import Draft, Present


_REFERENCE = re.compile(
    r"\$\$\{|\$\{(?:env:)?(?P<braced>[A-Za-z_]\w*)(?::-[^}]*)?\}|(?<!\$)\{env:(?P<open>\w+)\}"
    r"|\A\$(?P<whole>[A-Z]\w+)\Z",
    re.ASCII,
)
"""A reference to a variable, in all spellings that a configuration may have."""


@attrs.frozen(kw_only=True)
class OwnVariables:
    """What is to be done for each server to have its own variables."""

    draft: Draft
    """Both files as they are to be."""
    unused: tuple[str, ...]
    """Variables in the file that only programs would obey, and that nothing in the configuration refers to."""


def with_own_variables(present: Present, environ: Mapping[str, str]) -> OwnVariables:
    """Both files with SERVER__NAME for each variable of the file that a server refers to; comments stay.

    What loaders and interpreters obey stands in the entry again.

    Raises:
        ConfigError: the configuration is faulty besides its entries.
        DocumentError: a file cannot be read, or is written in a way that cannot be edited.
    """
    variables = Variables(known={**present.variables, **environ})
    moved: set[str] = set()
    used: set[str] = set()

    def change(document: Document) -> None:
        with document.together():
            for server, place in present.places.items():
                for trail, text in list(_texts(at(document.value(), place), place)):
                    if (other := _owned(text, server, present, variables, moved)) != text:
                        document.put(trail, other)
        used.update(name for trail, text in _texts(document.value(), ()) for name in _named(trail, text))

    change(read_document(present.config.text() or "{}", Format.JSON, source=str(present.config.path)))
    draft = changed(present, change, variables.kept, environ, removed=moved - used)
    rest = present.variables.keys() - moved - used
    return OwnVariables(draft=draft, unused=tuple(filter(is_read_by_programs, sorted(rest))))


def _owned(text: str, server: str, present: Present, variables: Variables, moved: set[str]) -> str:
    """A text of a server's entry that refers to the server's own variables; adds the others to `moved`."""

    def other(found: re.Match[str]) -> str:
        name = found[found.lastgroup] if found.lastgroup else ""
        value = present.variables.get(name)
        if value is None or name.startswith(f"{variable(server)}__"):
            return found[0]
        moved.add(name)
        if is_read_by_programs(name):
            return str(in_our_words(value, "", None))
        return variables.keep(server, name, value)

    return _REFERENCE.sub(other, text)


def _named(trail: Trail, text: str) -> Iterator[str]:
    """The variables that a text names: by reference, or alone where the key wants a name (`apiKeyEnv`)."""
    yield from (found[found.lastgroup] for found in _REFERENCE.finditer(text) if found.lastgroup)
    if "args" not in trail:
        yield text


def _texts(value: Any, trail: Trail) -> Iterator[tuple[Trail, str]]:
    """All texts within a value, each with its trail."""
    if isinstance(value, str):
        yield trail, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in items:
        yield from _texts(each, (*trail, step))
