"""mcpd put into the text of a client's file, in place of servers that mcpd has now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from daemon.documents.files import DocumentError
from daemon.documents.formats import read_document
from daemon.setup.clients.members import NamedEntry, members
from daemon.setup.clients.own_entry import is_own
from daemon.setup.clients.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.documents.formats import Document
    from daemon.setup.clients.programs import ClientPlace, Known

LAUNCH = frozenset({
    "args", "bearer_token_env_var", "cmd", "command", "cwd", "env", "envFile", "env_http_headers", "env_keys",
    "env_vars", "environment", "envs", "headers", "httpUrl", "http_headers", "requestOptions", "serverUrl",
    "transport", "type", "uri", "url",
})  # fmt: skip
"""The keys of all clients that say what a server is; what else an entry has, says how its client treats it."""


@attrs.frozen(kw_only=True)
class Installation:
    """How mcpd is to be put into a client."""

    command: str
    """The program `mcpd`: an absolute path."""
    args: tuple[str, ...] = ("connect",)
    """What it is given."""
    keep: bool = False
    """Whether the client's servers stay, those that mcpd has too."""
    one_to_one: bool = False
    """Whether each of them is reached through mcpd under its own name, instead of all through one."""


@attrs.frozen(kw_only=True)
class PutIn:
    """A file with mcpd in it."""

    text: str = attrs.field(repr=False)
    members: tuple[NamedEntry, ...]
    """The servers that were put, taken out or rewritten."""
    taken: tuple[str, ...] = ()
    """Servers that were taken out, or rewritten, because mcpd has them."""
    left: tuple[str, ...] = ()
    """Servers that stay because mcpd does not have them."""


def put_in(
    text: str,
    places: Sequence[ClientPlace],
    into: ClientPlace | None,
    wanted: Installation,
    known: Known,
) -> PutIn:
    """The text of a file with mcpd in it.

    Args:
        text: the file, without entries of mcpd's; empty for one that is not there.
        places: where in it the client has servers.
        into: that of them which mcpd is put into; None if it is another file's.
        wanted: how.
        known: which of the client's servers mcpd has.

    Raises:
        ConfigError: the text is not of the file's format.
        DocumentError: mcpd cannot be put there.
    """
    document = read_document(text, places[0].form, source=str(places[0].path))
    changed, taken, left = list[NamedEntry](), list[str](), list[str]()
    for place in () if wanted.keep else places:
        for member in members(document.value(), place.trail, listed=place.listed):
            entry = member.entry(document.value())
            name = known(place, member.name, entry)
            if name is None:
                left.append(member.name)
                continue
            taken.append(member.name)
            changed.append(member)
            if wanted.one_to_one:
                args = (*wanted.args, "--server", name)
                _rewrite(document, member, place.shape.write(wanted.command, args))
            else:
                member.remove(document)
    if into is not None and not wanted.one_to_one:
        own = NamedEntry(into.trail, OWN_NAME, into.listed)
        if own.entry(document.value()) is not None:
            raise DocumentError(
                f"{into.path} has a server '{OWN_NAME}' that is not mcpd: rename it there, then try again"
            )
        own.put(document, into.shape.write(wanted.command, wanted.args))
        changed.append(own)
    return PutIn(text=document.text(), members=tuple(changed), taken=tuple(taken), left=tuple(left))


def _rewrite(document: Document, member: NamedEntry, written: Mapping[str, Any]) -> None:
    """Give a server's entry another command line, and leave in it what is not about that."""
    place = member.place(document.value())
    entry = member.entry(document.value())
    assert place is not None
    assert isinstance(entry, dict)
    for key, value in written.items():
        # A client's entry may be written with a name or a switch, too; those that are there are the user's.
        if entry.get(key) != value and (key in LAUNCH or key not in entry):
            document.put((*place, key), value)
    for key in entry:
        if key in LAUNCH - written.keys():
            document.remove((*place, key))


def without_own(text: str, places: Sequence[ClientPlace]) -> str:
    """The text of a file without the entries that are mcpd's.

    Raises:
        ConfigError: the text is not of the file's format.
    """
    document = read_document(text, places[0].form, source=str(places[0].path))
    value = document.value()
    found = [member for place in places for member in members(value, place.trail, listed=place.listed)]
    own = [member for member in found if is_own(member.entry(value))]
    for member in own:
        member.remove(document)
    return document.text() if own else text
