"""The access tokens that count now: those of the configuration, and those that mcpd has made and keeps.

They are known by their digests. A value that is shown is compared with all of them, each in constant time, so
that the time tells neither whether it was nearly right nor which one it is.
"""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.catalog.remembered import TOKENS
from daemon.clients.visitor import Visitor
from daemon.host.tokens import TokenTrouble, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daemon.config.listen import ConsoleRole, HttpListen
    from daemon.config.redaction import Redactors
    from daemon.host.tokens import Kept, TokenFile


@attrs.frozen
class KnownToken:
    """A token that lets somebody in."""

    digest: bytes = attrs.field(repr=False)
    """By which it is recognised."""
    visitor: Visitor
    """Who shows it."""


class Tokens:
    """Says who shows a token; learns at once what `mcpd token` changes."""

    def __init__(
        self,
        listen: HttpListen,
        file: TokenFile,
        *,
        redact: Redactors,
        wall: Callable[[], float] = time.time,
        same: Callable[[bytes, bytes], bool] = hmac.compare_digest,
    ) -> None:
        """Start with the tokens of the configuration; `learn` adds those that mcpd keeps.

        Args:
            listen: the configuration, which changes with a restart only.
            file: the tokens that mcpd has made.
            redact: is told the one that is kept as it is.
            wall: returns seconds since the epoch.
            same: compares two digests in a time that does not depend on them.
        """
        self.used: dict[str, float] = {}
        """When each token was last shown, by name, in seconds since the epoch; since the daemon started."""
        self.problem = ""
        """Why the file could not be used when it was last looked at; empty if it could."""
        self.on_revoked: Callable[[Visitor], None] = lambda _visitor: None
        """Called with who has lost a token, whose streams and sockets are to be closed."""
        self._file = file
        self._keeps_default = listen.tokens is None
        self._configured = tuple(_configured(listen))
        self._known = self._configured
        self._redact = redact
        self._wall = wall
        self._same = same
        self._learning = trio.Lock()

    def match(self, value: str) -> Visitor | None:
        """Who shows this token; None if it is none."""
        shown = digest(value)
        found = None
        for token in self._known:
            # To the end, also after the right one: see the module's docstring.
            if self._same(token.digest, shown):
                found = token.visitor
        if found is not None:
            self.used[found.token] = self._wall()
        return found

    async def learn(self) -> None:
        """Read the file again; on a loopback address without configured tokens, see that there is one.

        What is known stays so while the file cannot be read: neither its loss nor its damage lets anybody in.
        """
        # One at a time: of two readings the later one counts.
        async with self._learning:
            try:
                kept = await trio.to_thread.run_sync(self._read)
            except TokenTrouble as error:
                self.problem = str(error)
                logger.error("tokens of `mcpd token` are not read: {}", self.problem)
                return
            self.problem = ""
            self._take(kept)

    def _take(self, kept: Kept) -> None:
        if kept.default is not None:
            self._redact.hide([kept.default.value])
        before, self._known = self._known, (*self._configured, *self._kept(kept))
        left = {token.digest for token in self._known}
        for token in before:
            if token.digest not in left:
                self.used.pop(token.visitor.token, None)
                self.on_revoked(token.visitor)

    def _read(self) -> Kept:
        return self._file.ensure_default(self._wall()) if self._keeps_default else self._file.read()

    def _kept(self, kept: Kept) -> Iterator[KnownToken]:
        if self._keeps_default and kept.default is not None:
            yield KnownToken(digest(kept.default.value), Visitor())
        for name, token in kept.tokens.items():
            visitor = bearer(name, token.profiles, token.console)
            yield KnownToken(bytes.fromhex(token.sha256), visitor)


def bearer(
    name: str,
    profiles: tuple[str, ...] | None,
    console: ConsoleRole | None = None,
    workspaces: tuple[str, ...] = (),
) -> Visitor:
    """Who shows a token with a name: sessions of his own, apart from those of the daemon's user."""
    owner = f"{TOKENS}{name}: "
    return Visitor(owner=owner, token=name, profiles=profiles, console=console, workspaces=workspaces)


def _configured(listen: HttpListen) -> Iterator[KnownToken]:
    if isinstance(listen.tokens, str):
        yield KnownToken(digest(listen.tokens), Visitor())
        return
    for token in listen.tokens or ():
        yield KnownToken(
            digest(token.value), bearer(token.name, token.profiles, token.console, token.workspaces)
        )
