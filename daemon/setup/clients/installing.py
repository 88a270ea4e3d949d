"""mcpd put into the text of a client's file, in place of servers that mcpd has now."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import attrs

from daemon.documents.files import DocumentError
from daemon.documents.formats import read_document
from daemon.errors import McpdError
from daemon.setup.clients.programs import OWN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.documents.edited import EditedText, Trail
    from daemon.setup.clients.programs import ClientPlace, Known


class NoProgram(McpdError):
    """There is no `mcpd` that others could start; the text says what to do."""


def own_command(called: str) -> str:
    """The absolute path of the `mcpd` that runs, links left as they are: an upgrade changes what they lead to.

    Args:
        called: how it was called: `sys.argv[0]`.

    Raises:
        NoProgram: it was not called as a program, and there is none beside the interpreter or on PATH.
    """
    named, beside = Path(called), Path(sys.executable).with_name(OWN_NAME)
    if named.name == OWN_NAME and named.is_file():
        return str(named.absolute())
    found = str(beside) if beside.is_file() else shutil.which(OWN_NAME)
    if found is None:
        raise NoProgram("there is no program `mcpd` beside this interpreter or on PATH: install mcpd first")
    return str(Path(found).absolute())


def is_own(entry: object) -> bool:
    """Whether a server, as any client writes it, is mcpd itself: `mcpd connect`, wherever the program lies.

    Also behind a runner: `uvx … mcpd connect`.
    """
    words = _command_line(entry)
    return (OWN_NAME, "connect") in pairwise([PurePath(word).name for word in words[:1]] + words[1:])


def _command_line(entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return []
    return [*_words(entry.get("command", entry.get("cmd"))), *_words(entry.get("args"))]


def _words(value: object) -> Iterator[str]:
    """The texts of a command line, which some clients write in one list, and some in an object."""
    match value:
        case str():
            yield value
        case list():
            yield from (word for word in value if isinstance(word, str))
        case {"path": str(path), **more}:
            yield path
            yield from _words(more.get("args"))


_NAME = "name"
"""The key of an item of a list that is a server's name."""


@attrs.frozen
class NamedEntry:
    """A server of a file, by its name."""

    trail: tuple[str, ...]
    """Where the servers stand, as in `ClientPlace`."""
    name: str
    listed: bool = False
    """Whether they are a list whose items have a `name`, as in `ClientPlace`."""

    def entry(self, value: object) -> object:
        """Its entry in the value of a file; None if it has none."""
        place = self.place(value)
        return None if place is None else at(value, place)

    def place(self, value: object) -> Trail | None:
        """The trail to its entry in the value of a file; None if it has none."""
        servers = at(value, self.trail)
        if isinstance(servers, list):
            named = (index for index, item in enumerate(servers) if _named(item) == self.name)
            index = next(named, None)
            return None if index is None else (*self.trail, index)
        return (*self.trail, self.name) if isinstance(servers, dict) and self.name in servers else None

    def put(self, document: EditedText, entry: Mapping[str, Any]) -> None:
        """Set its entry, which replaces one that is there.

        Raises:
            DocumentError: something on the way to it is no object.
        """
        value = document.value()
        written = {_NAME: self.name, **entry} if self.listed else dict(entry)
        place = self.place(value)
        if place is not None:
            document.put(place, written)
        elif not self.listed:
            document.put((*self.trail, self.name), written)
        elif isinstance(servers := at(value, self.trail), list) and servers:
            document.put((*self.trail, len(servers)), written)
        else:
            document.put(self.trail, [written])

    def remove(self, document: EditedText) -> None:
        """Remove its entry; nothing if there is none."""
        place = self.place(document.value())
        if place is not None:
            document.remove(place)


def members(value: object, trail: tuple[str, ...], *, listed: bool) -> list[NamedEntry]:
    """The servers at a place of a file."""
    servers = at(value, trail)
    names = [_named(item) for item in servers] if isinstance(servers, list) else servers
    # What is neither holds no servers, whatever it is.
    found = names if isinstance(names, dict | list) else ()
    return [NamedEntry(trail, name, listed) for name in found if isinstance(name, str)]


def at(value: object, trail: Trail) -> object:
    """What stands at a trail of a value; None if nothing does."""
    for step in trail:
        match value, step:
            case dict(), _:
                value = value.get(step)
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return None
    return value


def _named(item: object) -> str | None:
    name = item.get(_NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


WITHOUT = "--without"
"""The option of `mcpd connect` that names a server to show nothing of."""


def left_out(entry: object) -> set[str]:
    """The servers that an entry of mcpd's, as any client writes it, shows nothing of."""
    return {name for option, name in pairwise(_command_line(entry)) if option == WITHOUT}


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
    surface: str | None = None
    """The surface that it shows where servers are not themselves; None: what fits the client."""
    keep: bool = False
    """Whether the client's servers stay, those that mcpd has too."""
    one_to_one: bool = False
    """Whether each of them is reached through mcpd under its own name, instead of all through one."""
    apart: frozenset[str] = frozenset()
    """The servers of mcpd's that are not reached through that one, and keep their own names in the client."""

    @property
    def shared(self) -> tuple[str, ...]:
        """What mcpd is given where it shows all servers together."""
        surface = ("--surface", self.surface) if self.surface else ()
        return (*self.args, *surface, *(word for name in sorted(self.apart) for word in (WITHOUT, name)))


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
            if wanted.one_to_one or name in wanted.apart:
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
        own.put(document, into.shape.write(wanted.command, wanted.shared))
        changed.append(own)
    return PutIn(text=document.text(), members=tuple(changed), taken=tuple(taken), left=tuple(left))


def _rewrite(document: EditedText, member: NamedEntry, written: Mapping[str, Any]) -> None:
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
