"""The valid access tokens: those in the configuration, and those that operators had mcpd make.

A token made over the control socket is valid. Across restarts the service manager keeps its digest in sealed
memory (`host.notify`). A token that is only in the file, which servers could edit, is *doubted* until an
operator confirms it. Tokens are compared with all digests in constant time, against timing attacks.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import attrs
import trio
from loguru import logger

from daemon.catalog.loaded import TOKENS
from daemon.clients.client import Principal
from daemon.config.listen import AccessToken, ConsoleRole, HttpListen
from daemon.config.redaction import Redactors
from daemon.host import tokens
from daemon.kit.wording import quoted, suggestion

Named = dict[str, tokens.KeptToken]
"""Tokens by name; the default token has an empty one, and comes first."""


@attrs.define(eq=False, repr=False)
class Tokens:
    """Identifies principals by token; makes, confirms and revokes mcpd's own tokens."""

    _listen: HttpListen  # changes with a restart only
    _file: tokens.TokenFile  # of mcpd's own tokens
    _redact: Redactors = attrs.field(kw_only=True)
    _handed_over: bytes = attrs.field(default=b"", kw_only=True)  # the previous daemon's tokens, or empty
    _hand_over: Callable[[bytes], None] = attrs.field(default=lambda _content: None, kw_only=True)
    """Hands the valid tokens to the next daemon, where servers cannot reach them."""
    _wall: Callable[[], float] = attrs.field(default=time.time, kw_only=True)
    _same: Callable[[bytes, bytes], bool] = attrs.field(default=hmac.compare_digest, kw_only=True)
    used: dict[str, float] = attrs.field(factory=dict, init=False)
    """When each named token was last used, in seconds since the epoch; empty at the daemon's start."""
    problem: str = attrs.field(default="", init=False)  # the reason why the file is unusable, or empty
    on_revoked: Callable[[Principal], None] = attrs.field(default=lambda _visitor: None, init=False)
    """Closes the sessions and connections of a revoked token."""
    kept: Named = attrs.field(factory=dict, init=False)  # mcpd's own, valid tokens
    doubted: Named = attrs.field(factory=dict, init=False)  # tokens vouched for by the file alone
    _keeps_default: bool = attrs.field(init=False)
    _configured: Mapping[bytes, Principal] = attrs.field(init=False)
    """The principals of the configuration's tokens, by digest."""
    _known: Mapping[bytes, Principal] = attrs.field(init=False)
    _default: str = attrs.field(default="", init=False)
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._keeps_default = self._listen.tokens is None
        self._known = self._configured = dict(_configured(self._listen))

    def match(self, value: str) -> Principal | None:
        """The principal of a client's token; None if the token is invalid."""
        shown = tokens.digest(value)
        found = None
        for digest, visitor in self._known.items():
            # To the end, even after a match: see the module's docstring.
            if self._same(digest, shown):
                found = visitor
        if found is not None:
            self.used[found.token] = self._wall()
        return found

    def doubts(self, value: str) -> bool:
        """Whether a value belongs to an unconfirmed token."""
        shown = tokens.digest(value).hex()
        return any(each.sha256 == shown for each in self.doubted.values())

    async def learn(self) -> None:
        """Read the token file once. Without any token, make a default token if the door listens on loopback."""
        try:
            found = await trio.to_thread.run_sync(self._file.read)
        except tokens.TokenTrouble as error:
            self.problem, found = str(error), tokens.Kept()
            logger.error("tokens of `mcpd token` are not read: {}", self.problem)
        kept = _named(tokens.decoded(self._handed_over)) if self._handed_over else {}
        self.doubted = {
            name: each
            for name, each in _named(found).items()
            if kept.get(name) != each and (name or self._keeps_default)
        }
        if self._handed_over:
            self._take(kept)
        if self.doubted:
            logger.warning(
                "tokens of an earlier daemon are not accepted, as servers could edit {}: `mcpd token list`"
                " names them, `mcpd token confirm {}` accepts one",
                self._file.path,
                next(iter(self.doubted)) or "--default",
            )
        if self._keeps_default and not ("" in {**self.kept, **self.doubted} or self.problem):
            await self.renew_default()

    async def shown_default(self) -> str:
        """The default token, made if missing. TokenTrouble if only its digest is kept or the write fails."""
        if not self._default:
            if "" in self.kept:
                raise tokens.TokenTrouble(
                    "an earlier daemon made the token without a name, and only its digest is kept: clients that"
                    " have it can still use it. `mcpd token new NAME` makes one for another client, `mcpd token"
                    " revoke --default` puts a new one in its place"
                )
            await self.renew_default()
        return self._default

    async def renew_default(self) -> None:
        """Replace the default token; raises TokenTrouble if the file cannot be written."""
        value = self._new_value()
        made = tokens.KeptToken(sha256=tokens.digest(value).hex(), since=self._wall())
        await self._change("", made)
        self._default = value

    async def add(
        self,
        name: str,
        profiles: tuple[str, ...] | None,
        console: ConsoleRole | None = None,
        workspaces: tuple[str, ...] = (),
    ) -> str:
        """Make a token and store its digest. Raises `TokenTrouble`: name taken, too many, file not writable."""
        value = self._new_value()
        made = tokens.KeptToken(
            sha256=tokens.digest(value).hex(),
            since=self._wall(),
            profiles=profiles,
            console=console,
            workspaces=workspaces,
        )

        await self._change(name, made, is_new=True)
        return value

    async def revoke(self, name: str) -> None:
        """Remove a named token, valid or doubted. Raises TokenTrouble if it is unknown or the write fails."""
        self._require(name, self.kept | self.doubted)
        await self._change(name, None)

    async def confirm(self, name: str | None) -> None:
        """Make a doubted token valid. Raises `TokenTrouble`: not doubted, or the file is not writable."""
        if name is not None:
            self._require(name, self.doubted, " that waits to be confirmed")
        elif "" not in self.doubted:
            raise tokens.TokenTrouble(
                "no unnamed token waits to be confirmed: `mcpd token` shows the present one"
            )
        await self._change(name or "", self.doubted[name or ""])
        if name is None:
            self._default = ""

    def _require(self, name: str, among: Collection[str], which: str = "") -> None:
        if any(each.token == name for each in self._configured.values()):
            raise tokens.TokenTrouble(
                f"the configuration has token {quoted(name)}: change it there (listen.http.tokens), and start"
                " the daemon again"
            )
        if not name or name not in among:  # the default token has an empty name, which nobody may type
            raise tokens.TokenTrouble(f"no token{which} is named {quoted(name)}{suggestion(name, among)}")

    def _new_value(self) -> str:
        value = tokens.new_value()
        self._redact.hide([value])
        return value

    async def _change(self, name: str, token: tokens.KeptToken | None, *, is_new: bool = False) -> None:
        """Replace the valid token with this name, or remove it; it is no longer doubted."""
        # One at a time: each builds on the one before.
        async with self._changing:
            if self.problem:
                raise tokens.TokenTrouble(self.problem)
            if is_new and name in {**self.kept, **self.doubted}:
                raise tokens.TokenTrouble(
                    f"there is a token '{name}' already: `mcpd token revoke {name}` ends it"
                )
            if is_new and len(self.kept.keys() - {""}) >= tokens.MAX_TOKENS:
                raise tokens.TokenTrouble(
                    f"there are {tokens.MAX_TOKENS} tokens already: revoke those that nobody uses"
                )
            kept, doubted = _with(self.kept, name, token), _with(self.doubted, name, None)
            await trio.to_thread.run_sync(self._file.write, _stored({**doubted, **kept}))
            self.doubted = doubted
            self._take(kept)
            self._hand_over(tokens.encoded(_stored(kept)))

    def _take(self, kept: Named) -> None:
        self.kept, before = kept, self._known
        usable = ((name, each) for name, each in kept.items() if name or self._keeps_default)
        made = {
            bytes.fromhex(each.sha256): bearer(name, each) if name else Principal() for name, each in usable
        }
        self._known = {**self._configured, **made}
        for visitor in (before[digest] for digest in before.keys() - self._known.keys()):
            self.used.pop(visitor.token, None)
            self.on_revoked(visitor)


def _with(known: Named, name: str, token: tokens.KeptToken | None) -> Named:
    others = {each: kept for each, kept in known.items() if each != name}
    if token is None:
        return others
    return {**others, name: token} if name else {name: token, **others}


def _named(kept: tokens.Kept) -> Named:
    return {**({} if kept.default is None else {"": kept.default}), **kept.tokens}


def _stored(named: Named) -> tokens.Kept:
    return tokens.Kept(default=named.get(""), tokens={name: each for name, each in named.items() if name})


def bearer(name: str, token: tokens.KeptToken | AccessToken) -> Principal:
    """The principal of a named token; its sessions are kept apart from those of the daemon's user."""
    return Principal(
        owner=f"{TOKENS}{name}: ",
        token=name,
        profiles=token.profiles,
        console=token.console,
        workspaces=token.workspaces,
    )


def _configured(listen: HttpListen) -> Iterator[tuple[bytes, Principal]]:
    if isinstance(listen.tokens, str):
        yield tokens.digest(listen.tokens), Principal()
        return
    for token in listen.tokens or ():
        yield tokens.digest(token.value), bearer(token.name, token)
