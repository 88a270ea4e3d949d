"""Whose secrets are taken out of whose texts.

What a server says loses what that server was given: a password that is a word of every log must not blind the
logs of all the others. What could be nobody's word by chance goes from every text, for servers may know each
other's. What the daemon says of itself loses all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.redaction import doubtful, secrets, secrets_of
from daemon.redact import SHOWN, Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.config.model import Config

UNMISTAKABLE = 12
"""Characters from which a secret that is no plain word stands in no text by chance."""


class Redactors:
    """One for each server, and one for all that is nobody's in particular: itself, when it is called."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Begin with what nobody's texts may show."""
        self._unmistakable = Redactor(secrets)
        self._all = Redactor((), beside=self._unmistakable)
        self._each: dict[str, Redactor] = {}

    def __call__(self, text: str, most: int = SHOWN) -> str:
        """The text without any secret (`Redactor.__call__`)."""
        return self._all(text, most)

    def of(self, server: str) -> Redactor:
        """What takes secrets out of a server's texts; always the same object for a name."""
        known = self._each.get(server)
        if known is None:
            known = self._each[server] = Redactor((), beside=self._unmistakable)
        return known

    def learn(self, config: Config) -> None:
        """What this configuration holds must not be shown from now on; what was known before stays so.

        May be called in any thread.
        """
        every, anybodys = secrets(config), doubtful(config)
        self._unmistakable.learn(value for value in every - anybodys if len(value) >= UNMISTAKABLE)
        self._all.learn(every, anybodys)
        for server in config.mcp_servers.values():
            self.of(server.name).learn(*secrets_of(server))
        # Who is spoken of stands in the configuration, for everybody to read.
        names = {*config.mcp_servers, *config.categories, *config.profiles}
        for each in (self._all, *self._each.values()):
            each.spare(names)
