"""Gives tools, prompts and resources names that are unique across servers, and matches URI templates.

A tool keeps its own name unless another server's tool has that name. The first tool keeps the name while its
server is configured, across restarts; later ones are called `server__tool`. If servers start together, the
configuration's order decides until a client has seen the name. No tool gets a name that reads as another
server's (`github/delete`), or a server could hijack references. Prompts and URIs follow the same rules.

URIs of MCP Apps (SEP-1865) and Skills (SEP-2640) name their server, because hosts cache by URI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import Any
from urllib.parse import quote, unquote

import attrs
import msgspec
from msgspec import Raw

from daemon.config.names import CLIENT_PREFIX, SERVER_NAME, read_reference, read_shown, spellings
from daemon.kit.later import pattern
from daemon.model import NO_APP, AppLink, GivenName, Kind, ToolKey
from daemon.protocol import UNREADABLE, decode_members, decode_text

MCPD = "mcpd://"

SCHEME = pattern(r"[A-Za-z][A-Za-z0-9+.-]*:")

_KEPT = pattern(r"(?:ui|skill)://", re.IGNORECASE)
"""Schemes that tell clients the purpose of a URI (SEP-1865, SEP-2640); mcpd writes `ui://mcpd+SERVER/…`."""

_OURS = pattern(r"mcpd://|(?:ui|skill)://mcpd\+", re.IGNORECASE)

_OWN = pattern(rf"(?!{_OURS.pattern})(?:[a-z][a-z0-9+.-]*:|[^{{]*\{{)", re.IGNORECASE)
"""Matches URIs and templates that keep their own names."""

_QUOTED = tuple(quote(bytes([byte]), safe="") for byte in range(256))
"""Each byte's percent-encoding: `quote` takes ten times as long, and there may be ten thousand URIs."""


class Spelling(msgspec.Struct, frozen=True):
    """The rules by which definitions of one kind are named."""

    kind: Kind
    ways: Callable[[ToolKey], Iterator[str]]
    """Yields possible names, the best first; at least one is always free."""
    misleads: Callable[[str, str, Collection[str]], bool]
    """Whether a server's name for a definition reads as a reference to another of these servers."""


def of_tool(key: ToolKey) -> Iterator[str]:
    """Possible names of a tool or prompt, its own first; endless, since any of them may be taken."""
    server, own = key
    yield own
    _bare, slashed, prefixed = spellings(server, own)
    yield from (f"{server}__{own}", slashed, prefixed)
    for number in count(2):
        # Server names contain no slash, so this name reads as no other server's tool.
        yield from (f"{server}__{own}_{number}", f"{server}/{own}_{number}")


def misleads(name: str, server: str, servers: Collection[str]) -> bool:
    """Whether a name of a server's tool reads as another server's tool."""
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
    """The `name` in `mcp__us__name`, which is a client's spelling of a name that mcpd gave; else empty."""
    if not name.startswith(CLIENT_PREFIX):
        return ""
    rest = name.removeprefix(CLIENT_PREFIX).partition("__")[2]
    return "" if rest.startswith(CLIENT_PREFIX) else rest


def of_uri(key: ToolKey) -> Iterator[str]:
    """Possible names of a URI or template: first the text itself, unless it misleads, then `mcpd_uri`."""
    server, own = key
    if _OWN.match(own):
        yield own
    yield mcpd_uri(server, own)


def mcpd_uri(server: str, own: str) -> str:
    """The URI that names a server and the server's own URI."""
    if kept := _KEPT.match(own):
        return f"{kept[0]}mcpd+{server}/{own[kept.end() :]}"
    return f"{MCPD}{server}/{own if '{' in own else ''.join(map(_QUOTED.__getitem__, own.encode()))}"


def app_uri(server: str, own: str) -> str:
    """Qualify the URI of an app or of a skill's file by its server; other URIs stay as they are."""
    return mcpd_uri(server, own) if _KEPT.match(own) else own


def is_mcpd(uri: str) -> bool:
    """Whether mcpd made a URI; clients may have changed its case."""
    return _OURS.match(uri) is not None


def is_page(uri: str) -> bool:
    """Whether a URI is an app's page (SEP-1865)."""
    return uri[:5].lower() == "ui://"


def read_mcpd_uri(uri: str) -> ToolKey | None:
    """The server and the server's own URI in a URI that mcpd made; None if malformed."""
    ours, kept = _OURS.match(uri), _KEPT.match(uri)
    server, slash, rest = uri[ours.end() if ours else 0 :].partition("/")
    server = server.lower()
    if not ours or not slash or not SERVER_NAME.fullmatch(server):
        return None
    if kept:
        return server, kept[0] + rest
    if SCHEME.match(rest):
        # `mcpd_uri` encodes colons: this is an expanded template, or handwritten.
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


MAX_URI = 4096
"""Characters of the longest URI that is compared with templates; real URIs have a few hundred."""

MAX_COMPARED = 16 * 1024
"""Most characters of templates compared with one URI, the longest literal starts first: 10 ms."""

_EXPRESSION = pattern(r"\{([^{}]*)\}")

_ENDED_BY: Mapping[str, str] = {"+": "", "#": "", "?": "#", "&": "#", "/": "?#"}
"""Characters that an expression cannot produce, by its operator."""

_ENDED_OTHERWISE = "/?#"
"""The same for `.`, `;` and no operator; no other characters, as not every client encodes them."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A server's URI template."""

    server: str
    text: str

    @property
    def literal(self) -> str:
        """The text before the template's first expression."""
        return self.text.partition("{")[0]

    @property
    def has_scheme(self) -> bool:
        """Whether all URIs of the template have one scheme; other templates could match any server's URIs."""
        return SCHEME.match(self.literal) is not None

    def fits(self, uri: Letters) -> bool:
        """Whether the template can produce this URI."""
        # Bit n: the parts so far can become the first n characters.
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
    """The positions of each letter in a URI, as bits of an integer."""

    def __init__(self, uri: str) -> None:
        self.length = len(uri)
        self._where: dict[str, int] = {}
        for place, letter in enumerate(uri):
            self._where[letter] = self._where.get(letter, 0) | 1 << place

    def where(self, letter: str) -> int:
        """The positions of a letter."""
        return self._where.get(letter, 0)

    def moved(self, places: int, ended_by: str) -> int:
        """The positions that can be reached from `places` without crossing a letter in `ended_by`."""
        run = (1 << self.length) - 1
        for letter in ended_by:
            run &= ~self.where(letter)
        # A one added to a run of ones carries past its end; changed bits were reached.
        return places | ((places & run) + run) ^ run


def fitting(templates: Iterable[Template], uri: str) -> Iterator[Template]:
    """The templates that can produce a URI, those with the longest literal start first."""
    if len(uri) > MAX_URI:
        return
    begin_so = [each for each in templates if uri.startswith(each.literal)]
    begin_so.sort(key=lambda each: len(each.literal), reverse=True)
    letters, left = Letters(uri), MAX_COMPARED
    for each in begin_so:
        # A long template leaves room for shorter ones, perhaps of another server.
        if len(each.text) <= left:
            left -= len(each.text)
            if each.fits(letters):
                yield each


def _taken_apart(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            yield text[at : found.start()], ""
        yield "", found[1][:1]
        at = found.end()
    if at < len(text):
        yield text[at:], ""


MAX_REMEMBERED = 50_000
"""Names kept, also of unlisted tools: a server may invent names without end."""


@attrs.frozen(kw_only=True)
class Names:
    """The names of all definitions of one kind."""

    owners: Mapping[str, ToolKey]
    given: Mapping[ToolKey, str] = attrs.field(repr=False)
    beside: Mapping[ToolKey, str] = attrs.field(repr=False)
    """Second names, for lists in which a meta-tool has the first name."""
    provisional: frozenset[ToolKey] = attrs.field(default=frozenset(), repr=False)
    """Definitions whose names a server earlier in the configuration may take, until a client has seen them."""
    begun: float = 0.0
    """When this run's names became valid, in epoch seconds."""
    remembered: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """When each stored name became valid, in epoch seconds."""
    servers: frozenset[str] = frozenset()
    spelling: Spelling = attrs.field(default=SPELLINGS[Kind.TOOL], repr=False)

    def name_of(self, key: ToolKey) -> str:
        """The name of a tool for clients."""
        return self.given.get(key, key[1])

    def name_beside(self, key: ToolKey, meta_tools: Container[str]) -> str:
        """The name of a tool for clients, in a list with these meta-tools."""
        name = self.name_of(key)
        return self.beside.get(key, f"{key[0]}__{key[1]}") if name in meta_tools else name

    def key_of(self, name: str, servers: Collection[str]) -> ToolKey | None:
        """The tool that a name in any spelling means, listed or not; None for an unknown bare name."""
        owner = self.owners.get(name)
        if owner is not None and owner[0] in servers:
            return owner
        if (key := referred(name, servers)) is not None:
            return key
        rest = without_client_prefix(name)
        return self.key_of(rest, servers) if rest else None

    def since(self, key: ToolKey) -> float:
        """Since when all names of a tool have meant this tool, in epoch seconds."""
        names = (self.given.get(key), self.beside.get(key))
        return max((self.valid_since(name) for name in names if name), default=self.begun)

    def remembering(self, names: Iterable[GivenName]) -> Names:
        """Add stored names. Names given in this run stay, since clients may have seen them."""
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
            self, owners=owners, given=given, beside=beside, provisional=frozenset(), remembered=remembered
        )

    def valid_since(self, name: str) -> float:
        """Since when a name is valid, in epoch seconds."""
        return self.remembered.get(name, self.begun)

    def settled(self) -> Names:
        """Make all names final after a client has seen them; the same object if they were final."""
        return attrs.evolve(self, provisional=frozenset()) if self.provisional else self


NO_NAMES = {
    kind: Names(owners={}, given={}, beside={}, spelling=spelling) for kind, spelling in SPELLINGS.items()
}


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """One server's definitions that need names."""

    server: str
    own: Collection[str]
    pending: bool
    named: bool = False
    """Whether all of these had names before."""


def assign(names: Names, servers: Iterable[Claims], reserved: Container[str] = ()) -> Names:
    """The names after a change; `names` if equal. A tool whose name is `reserved` gets a second name."""
    servers = list(servers)
    spelling = names.spelling
    configured = frozenset(claims.server for claims in servers)
    same = configured == names.servers
    if same and _has_all(names, servers):
        return names
    if same and not names.provisional and len(names.given) <= MAX_REMEMBERED:
        # Names are only added. A copy of tens of thousands takes a tenth of the time of a check of each.
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
    same, misleads = configured == names.servers, names.spelling.misleads
    begun = names.begun
    given = {
        key: name
        for key, name in names.given.items()
        if key not in names.provisional and (same or not misleads(name, key[0], configured))
    }
    if len(given) > MAX_REMEMBERED:
        # From here on, forgotten names may have meant something else.
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
    """The names where only these servers are listed together; `own` has each server's own names.

    A definition keeps its own name, unless another of these servers ever had it or it reads as another
    server's: then it has its global name.
    """
    servers = frozenset(own)
    given: dict[ToolKey, str] = {}
    for server, listed in own.items():
        others = servers - {server}
        for each in listed:
            given[server, each] = each if _stays(names, server, each, others) else names.name_of((server, each))
    owners = {name: key for key, name in given.items()}
    return attrs.evolve(
        names, owners=owners, given=given, beside={}, provisional=frozenset(), remembered={}, servers=servers
    )


def _stays(names: Names, server: str, own: str, others: Collection[str]) -> bool:
    key, spelling = (server, own), names.spelling
    if not others or names.given.get(key) == own:
        return True
    return (
        next(spelling.ways(key)) == own
        and not any((other, own) in names.given for other in others)
        and not spelling.misleads(own, server, others)
    )


def _has_all(names: Names, servers: Iterable[Claims]) -> bool:
    """Whether all claims have final names, which is the usual case after a change of a list."""
    return (
        not names.provisional
        and len(names.given) <= MAX_REMEMBERED
        and all(
            claims.named or all((claims.server, own) in names.given for own in claims.own) for claims in servers
        )
    )


def _free(owners: Container[str], key: ToolKey, servers: Collection[str], spelling: Spelling) -> str:
    for name in spelling.ways(key):
        if name not in owners and not spelling.misleads(name, key[0], servers):
            return name
    raise AssertionError(f"no name is free for {key}")


META = "_meta"
FLAT = "ui/resourceUri"
"""The form of `_meta.ui.resourceUri` before 2026, which servers still write."""

_decode_many = msgspec.json.Decoder(list[Raw]).decode


def app_link(meta: object) -> AppLink:
    """A tool's app, and who may call the tool, from its decoded `_meta`; faulty members count as missing."""
    if not isinstance(meta, dict):
        return NO_APP
    given = meta.get("ui")
    ui = given if isinstance(given, dict) else {}
    page, audience = ui.get("resourceUri", meta.get(FLAT)), ui.get("visibility")
    page = page if isinstance(page, str) and is_page(page) else ""
    audience = audience if isinstance(audience, list) else ["model", "app"]
    return AppLink(page=page, for_models="model" in audience, for_apps="app" in audience)


def with_own_page(meta: bytes, server: str) -> bytes:
    """A tool's raw `_meta`, in which the app's URI names the server."""
    return with_uris(partial(mcpd_uri, server), (FLAT, "ui.resourceUri"), meta)


def skill_uri(server: str, own: str) -> str:
    """The URI of a skill's file that names the server and ends like the server's own URI (SEP-2640, URIs)."""
    kept = app_uri(server, own)
    return f"{MCPD}{server}/{own}" if kept == own else kept


def skill_with(uri: str, skills: Iterable[str]) -> str:
    """The innermost of a server's skills that has a URI in its directory; without a skill, the URI itself."""
    return max(
        (each for each in skills if f"{uri}/".startswith(each.removesuffix("SKILL.md"))), key=len, default=uri
    )


def skill_fault(entry: Mapping[str, object]) -> str:
    """Why a skill's entry cannot be used; empty if it can."""
    front, files = entry.get("frontmatter"), entry.get("resources")
    if not isinstance(front, dict) or not isinstance(front.get("name"), str):
        return "its frontmatter has no name, which SEP-2640 requires"
    listed = are_named(files, "uri") or files == "dynamic"
    return "" if listed else "its `resources` must be a list of files, each with a uri"


def are_named(items: object, member: str) -> bool:
    """Whether a decoded value is a list of objects in which `member` is always a text."""
    return isinstance(items, list) and all(
        isinstance(each, dict) and isinstance(each.get(member), str) for each in items
    )


def with_uris(name: Callable[[str], str], paths: Iterable[str], raw: bytes | memoryview | Raw) -> bytes:
    """Apply `name` to the texts at dotted paths in raw JSON (`*`: in each item); other values stay."""
    whole = bytes(raw)
    for path in paths:
        whole = renamed_at(whole, path.split("."), name)
    return whole


def renamed_at(raw: bytes, path: Sequence[str], name: Callable[[str], str]) -> bytes:
    """Apply `name` to the text at one path in raw JSON, as `with_uris` does."""
    return msgspec.json.encode(_renamed(Raw(raw), path, name))


def _renamed(raw: Raw, path: Sequence[str], name: Callable[[str], str]) -> object:
    """The value with its text renamed; parts off the path stay raw, so that the whole is encoded once."""
    try:
        if not path:
            return name(decode_text(raw))
        if path[0] == "*":
            return [_renamed(each, path[1:], name) for each in _decode_many(raw)]
        members: dict[str, Any] = decode_members(raw)
        members[path[0]] = _renamed(members[path[0]], path[1:], name)
    except (*UNREADABLE, KeyError):
        return raw
    return members
