"""Names of tools, prompts and resources where those of several servers are listed together; URI templates.

A tool keeps its own name unless another server has a tool of that name. The name then belongs to one of them
for as long as its server is configured, even across restarts of the daemon; the others are called
`server__tool`. The first to have a name owns it; of servers that start together, the first in the configuration
does, as long as no client was shown the name. So a second server never renames the tools of the first, a name
that was shown never comes to mean another tool, and no two tools share a name.

No tool is given a name that reads as another server's, such as `github/delete` or `mcp__github__delete`:
otherwise a server could take over what a configuration or a model writes about another one. When a server is
added to the configuration, names that now read as its tools are given up.

The same holds for prompts and for URIs, each among themselves; only how a name is spelt differs.
"""

from __future__ import annotations

import re
from itertools import count
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import attrs
import msgspec

from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, read_reference, read_shown, spellings
from daemon.model import GivenName, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

    from daemon.model import ToolKey


MCPD = "mcpd://"
"""How the URIs begin that say themselves whose they are."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""The scheme that a URI begins with (RFC 3986, 3.1)."""

_OWN = re.compile(r"(?!mcpd://)(?:[a-z][a-z0-9+.-]*:|[^{]*\{)", re.IGNORECASE)
"""What may stay as it is: a URI or a template, but none that begins like ours."""

_QUOTED = tuple(quote(bytes([byte]), safe="") for byte in range(256))
"""Each byte as it is written in a URI; `quote` takes ten times as long, and there may be ten thousand URIs."""


class Spelling(msgspec.Struct, frozen=True):
    """The rules for the names of one kind."""

    kind: Kind
    """The kind that is stored with a name."""
    ways: Callable[[ToolKey], Iterator[str]]
    """The possible names of a server's own name, the best first; one of them is always free."""
    misleads: Callable[[str, str, Collection[str]], bool]
    """Whether a name, given to one server's, reads as a reference to another's of these servers."""


def of_tool(key: ToolKey) -> Iterator[str]:
    """Possible names of a tool or a prompt, its own first. Endless: servers may have others of such names."""
    server, own = key
    yield own
    _bare, slashed, prefixed = spellings(server, own)
    yield from (f"{server}__{own}", slashed, prefixed)
    for number in count(2):
        # A server's name has no slash: this one reads as no other server's tool.
        yield from (f"{server}__{own}_{number}", f"{server}/{own}_{number}")


def misleads(name: str, server: str, servers: Collection[str]) -> bool:
    """Whether a name for a tool of one server reads as a reference to a tool of another one."""
    if "/" not in name and "__" not in name:
        return False
    key = referred(name, servers)
    if key is None and (rest := without_client_prefix(name)):
        key = referred(rest, servers)
    return key is not None and key[0] != server


def referred(name: str, servers: Collection[str]) -> ToolKey | None:
    """The tool that `server/tool`, `server__tool` or `mcp__server__tool` means; None for an unknown server."""
    for read in (read_reference, read_shown):
        reference = read(name, servers)
        if reference.server is not None and reference.server in servers:
            return reference.server, reference.tool
    return None


def without_client_prefix(name: str) -> str:
    """`name` in `mcp__us__name`, as clients write the names that we give; empty for other spellings."""
    if not name.startswith(CLIENT_PREFIX):
        return ""
    rest = name.removeprefix(CLIENT_PREFIX).partition("__")[2]
    return "" if rest.startswith(CLIENT_PREFIX) else rest


def of_uri(key: ToolKey) -> Iterator[str]:
    """Possible names of a URI or a template: itself, unless it is no URI or one of ours, and `mcpd_uri`."""
    server, own = key
    if _OWN.match(own):
        yield own
    yield mcpd_uri(server, own)


def mcpd_uri(server: str, own: str) -> str:
    """The URI that says itself whose it is."""
    return f"{MCPD}{server}/{own if '{' in own else ''.join(map(_QUOTED.__getitem__, own.encode()))}"


def is_mcpd(uri: str) -> bool:
    """Whether a URI has our scheme, in whatever case: clients may write schemes in lower case."""
    return uri[: len(MCPD)].lower() == MCPD


def read_mcpd_uri(uri: str) -> ToolKey | None:
    """The server, and its own URI, that one of our URIs means; None if it is malformed."""
    server, slash, rest = uri[len(MCPD) :].partition("/")
    server = server.lower()
    if not is_mcpd(uri) or not slash or not SERVER_NAME.fullmatch(server):
        return None
    if SCHEME.match(rest):
        # A colon is always encoded in `mcpd_uri`: this is an expanded template, or was written by hand.
        return server, rest
    try:
        own = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        return None
    return (server, own) if own else None


SPELLINGS: Mapping[Kind, Spelling] = {
    Kind.TOOL: Spelling(Kind.TOOL, of_tool, misleads),
    Kind.PROMPT: Spelling(Kind.PROMPT, of_tool, misleads),
    Kind.RESOURCE: Spelling(Kind.RESOURCE, of_uri, lambda _name, _server, _servers: False),
}
"""The rules for the names of tools, of prompts, and of URIs, which resources and templates share."""


MAX_URI = 4096
"""Longest URI, in characters, that is compared with templates: real ones have some hundred."""

MAX_COMPARED = 16 * 1024
"""Characters of all templates together that one URI is compared with, some hundred real ones: those with the
longest literal beginning first. Ten milliseconds at most, whatever servers list."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")

_ENDED_BY: Mapping[str, str] = {"+": "", "#": "", "?": "#", "&": "#", "/": "?#"}
"""The characters that an expression does not become, by its operator."""

_ENDED_OTHERWISE = "/?#"
"""The same for those without an operator, `.` and `;`. All else may come: not every client encodes."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One server's template."""

    server: str
    """The server that lists it."""
    text: str
    """The template."""

    @property
    def literal(self) -> str:
        """What each of its URIs begins with."""
        return self.text.partition("{")[0]

    @property
    def has_scheme(self) -> bool:
        """Whether each of its URIs has the same scheme; others could stand for any server's."""
        return SCHEME.match(self.literal) is not None

    def fits(self, uri: Letters) -> bool:
        """Whether it can become this URI."""
        # Bit n: the first n characters are what the parts so far can become.
        places = 1
        for literal, operator in _taken_apart(self.text):
            for letter in literal:
                places = (places & uri.where(letter)) << 1
            if not literal:
                places = uri.moved(places, _ENDED_BY.get(operator, _ENDED_OTHERWISE))
            if not places:
                return False
        return bool(places >> uri.length & 1)


class Letters:
    """A URI by its letters: in which places each stands, as the bits of a number."""

    def __init__(self, uri: str) -> None:
        """Take a URI of at most `MAX_URI` characters."""
        self.length = len(uri)
        self._where: dict[str, int] = {}
        for place, letter in enumerate(uri):
            self._where[letter] = self._where.get(letter, 0) | 1 << place

    def where(self, letter: str) -> int:
        """The places of a letter."""
        return self._where.get(letter, 0)

    def moved(self, places: int, ended_by: str) -> int:
        """All places that can be reached from these over letters that are not among `ended_by`."""
        run = (1 << self.length) - 1
        for letter in ended_by:
            run &= ~self.where(letter)
        # Added to a run of ones, a one becomes a carry behind the end of the run; what differs was run over.
        return places | ((places & run) + run) ^ run


def fitting(templates: Iterable[Template], uri: str) -> Iterator[Template]:
    """The templates that can become a URI, those with the longest literal beginning first."""
    if len(uri) > MAX_URI:
        return
    begin_so = [each for each in templates if uri.startswith(each.literal)]
    begin_so.sort(key=lambda each: len(each.literal), reverse=True)
    letters, left = Letters(uri), MAX_COMPARED
    for each in begin_so:
        # A long one leaves room for shorter ones, which may be another server's.
        if len(each.text) <= left:
            left -= len(each.text)
            if each.fits(letters):
                yield each


def _taken_apart(text: str) -> Iterator[tuple[str, str]]:
    """The literals of a template, each with an empty operator, and the operators of its expressions."""
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            yield text[at : found.start()], ""
        yield "", found[1][:1]
        at = found.end()
    if at < len(text):
        yield text[at:], ""


MAX_REMEMBERED = 50_000
"""Most names that are kept, including those of tools that are no longer listed: a bound for a server that keeps
inventing new ones."""


@attrs.frozen(kw_only=True)
class Names:
    """The names under which clients call tools, and the tools that they mean; likewise prompts and URIs."""

    owners: Mapping[str, ToolKey]
    """The tool of every name that was given: no two tools share a name."""
    given: Mapping[ToolKey, str] = attrs.field(repr=False)
    """The name of each tool."""
    beside: Mapping[ToolKey, str] = attrs.field(repr=False)
    """The second name of a tool, used beside a meta-tool of the same name."""
    provisional: frozenset[ToolKey] = attrs.field(default=frozenset(), repr=False)
    """Tools whose names an earlier server in the configuration may still take, until a client is shown them."""
    begun: float = 0.0
    """Since when names given in this run of the daemon are valid, in seconds since the epoch."""
    remembered: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when names known from earlier runs are valid, in seconds since the epoch."""
    servers: frozenset[str] = frozenset()
    """The configured servers: no name of one's tool reads as a reference to another's."""
    spelling: Spelling = attrs.field(default=SPELLINGS[Kind.TOOL], repr=False)
    """How names are spelt, and of what they are."""

    def name_of(self, key: ToolKey) -> str:
        """What a client calls a tool."""
        return self.given.get(key, key[1])

    def name_beside(self, key: ToolKey, meta_tools: Container[str]) -> str:
        """What a client calls a tool beside these meta-tools, whose names are taken."""
        name = self.name_of(key)
        return self.beside.get(key, f"{key[0]}__{key[1]}") if name in meta_tools else name

    def key_of(self, name: str, servers: Collection[str]) -> ToolKey | None:
        """The tool that a name means, in any spelling, listed or not; None for a bare name that no tool has.

        A name that was given takes precedence, then `server/tool`, `server__tool` and `mcp__server__tool`, then
        `name` in `mcp__us__name`: clients put a prefix before the names that we give.
        """
        owner = self.owners.get(name)
        if owner is not None and owner[0] in servers:
            return owner
        if (key := referred(name, servers)) is not None:
            return key
        rest = without_client_prefix(name)
        return self.key_of(rest, servers) if rest else None

    def since(self, key: ToolKey) -> float:
        """Since when all names of a tool have meant this tool, in seconds since the epoch."""
        names = (self.given.get(key), self.beside.get(key))
        return max((self.valid_since(name) for name in names if name), default=self.begun)

    def remembering(self, names: Iterable[GivenName]) -> Names:
        """With names of earlier runs; those given in this run may have been shown, so they stay."""
        given = {key: name for key, name in self.given.items() if key not in self.provisional}
        beside = {key: name for key, name in self.beside.items() if key in given}
        owners = {name: key for table in (given, beside) for key, name in table.items()}
        remembered = dict(self.remembered)
        for each in names:
            if each.kind is not self.spelling.kind:
                continue
            table = beside if each.beside else given
            free = each.name not in owners and each.key not in table
            if free and not self.spelling.misleads(each.name, each.key[0], self.servers):
                owners[each.name], table[each.key] = each.key, each.name
            if owners.get(each.name) == each.key:
                remembered[each.name] = each.since
        return attrs.evolve(
            self,
            owners=owners,
            given=given,
            beside=beside,
            provisional=frozenset(),
            remembered=remembered,
        )

    def valid_since(self, name: str) -> float:
        """Since when a name has meant what it means, in seconds since the epoch."""
        return self.remembered.get(name, self.begun)

    def settled(self) -> Names:
        """These names once a client was shown them: none is provisional; the same object if none was."""
        return attrs.evolve(self, provisional=frozenset()) if self.provisional else self


NO_NAMES = {
    kind: Names(owners={}, given={}, beside={}, spelling=spelling) for kind, spelling in SPELLINGS.items()
}
"""All names before any server has listed."""


@attrs.frozen(kw_only=True)
class Claims:
    """The names that one server claims for its tools, its prompts or its resources."""

    server: str
    """The name of the server."""
    own: Collection[str]
    """What the server lists, by their own names."""
    pending: bool
    """Whether its first list of them is still expected."""
    named: bool = False
    """Whether all of them were given names the last time."""


def assign(names: Names, servers: Iterable[Claims], reserved: Container[str] = ()) -> Names:
    """The names after something changed; the same object if they are the same.

    Args:
        names: the names before.
        servers: the claims of all servers, in the configuration's order.
        reserved: names of meta-tools; a tool with such a name gets a second one.
    """
    servers = list(servers)
    spelling = names.spelling
    configured = frozenset(claims.server for claims in servers)
    same = configured == names.servers
    if same and _has_all(names, servers):
        return names
    if same and not names.provisional and len(names.given) <= MAX_REMEMBERED:
        # Names are only added. There may be tens of thousands: a copy takes a tenth of a look at each.
        given, beside, owners = dict(names.given), dict(names.beside), dict(names.owners)
        begun, remembered = names.begun, names.remembered
    else:
        given, beside, begun = _still_valid(names, servers, configured)
        owners = {name: key for table in (given, beside) for key, name in table.items()}
        remembered = {name: since for name, since in names.remembered.items() if name in owners}
    provisional: set[ToolKey] = set()
    before_settled = True
    for claims in servers:
        for own in () if same and claims.named and not names.provisional else claims.own:
            key = claims.server, own
            if key not in given:
                given[key] = _free(owners, key, configured, spelling)
                owners[given[key]] = key
                if not before_settled:
                    provisional.add(key)
            if given[key] in reserved and key not in beside:
                beside[key] = _free(owners, key, configured, spelling)
                owners[beside[key]] = key
        before_settled = before_settled and not claims.pending
    made = Names(
        owners=owners,
        given=given,
        beside=beside,
        provisional=frozenset(provisional),
        begun=begun,
        remembered=remembered,
        servers=configured,
        spelling=spelling,
    )
    return names if made == names else made


def _still_valid(
    names: Names, servers: Iterable[Claims], configured: frozenset[str]
) -> tuple[dict[ToolKey, str], dict[ToolKey, str], float]:
    """The given names and the second names that still hold among these servers, and since when they do."""
    same, misleads = configured == names.servers, names.spelling.misleads
    begun = names.begun
    given = {
        key: name
        for key, name in names.given.items()
        if key not in names.provisional and (same or not misleads(name, key[0], configured))
    }
    if len(given) > MAX_REMEMBERED:
        # From here on it is unknown which of the given names once meant something else.
        begun = inf
        listed = {(claims.server, own) for claims in servers for own in claims.own}
        given = {key: name for key, name in given.items() if key in listed}
    beside = {
        key: name
        for key, name in names.beside.items()
        if key in given and (same or not misleads(name, key[0], configured))
    }
    return given, beside, begun


def among(names: Names, own: Mapping[str, Collection[str]]) -> Names:
    """The names where only these servers' are listed together, by what each of them lists under its own names.

    Each goes by its own name, unless another of these servers has ever had one like it, or it reads as another
    one's: then by the name that it has among all. So here, too, no name comes to mean another server's.
    """
    servers = frozenset(own)
    given: dict[ToolKey, str] = {}
    for server, listed in own.items():
        others = servers - {server}
        for each in listed:
            given[server, each] = each if _stays(names, server, each, others) else names.name_of((server, each))
    owners = {name: key for key, name in given.items()}
    return attrs.evolve(
        names,
        owners=owners,
        given=given,
        beside={},
        provisional=frozenset(),
        remembered={},
        servers=servers,
    )


def _stays(names: Names, server: str, own: str, others: Collection[str]) -> bool:
    """Whether a server's own name may stay where those of some other servers stand beside it."""
    key, spelling = (server, own), names.spelling
    if not others or names.given.get(key) == own:
        return True
    return (
        next(spelling.ways(key)) == own
        and not any((other, own) in names.given for other in others)
        and not spelling.misleads(own, server, others)
    )


def _has_all(names: Names, servers: Iterable[Claims]) -> bool:
    """Whether no name is provisional or missing: most lists that change keep their names."""
    return (
        not names.provisional
        and len(names.given) <= MAX_REMEMBERED
        and all(
            claims.named or all((claims.server, own) in names.given for own in claims.own) for claims in servers
        )
    )


def _free(owners: Container[str], key: ToolKey, servers: Collection[str], spelling: Spelling) -> str:
    """The first spelling of a server's own name that is free and reads as no other server's."""
    return next(
        name
        for name in spelling.ways(key)
        if name not in owners and not spelling.misleads(name, key[0], servers)
    )
