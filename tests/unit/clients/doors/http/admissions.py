"""What the tests of admission share: heads of requests, tokens, and what was counted and logged."""

from collections import Counter
from pathlib import Path
from typing import Any

import attrs

from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.reading import Head
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.config.listen import AccessToken, HttpListen
from daemon.config.redaction import Redactors
from daemon.host.tokens import TokenFile

NOBODY = "anonymous-0123456789"
CI = AccessToken(name="ci", value="continuous-0123456789", profiles=("reader", "default"))
ANN = AccessToken(name="ann", value="annes-own-0123456789")


def head(**headers: str) -> Head:
    """A request with these headers (`_` for `-`), from this machine and with a good Host unless they say so."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    peer = named.pop("peer", "127.0.0.1")
    method = named.pop("method", "POST")
    return Head(method=method, path="/mcp", headers={"host": "127.0.0.1:7337", **named}, peer=peer)


def bearing(value: str, **headers: str) -> Head:
    """A request with a token."""
    return head(authorization=f"Bearer {value}", **headers)


@attrs.define
class Hall:
    """An admission with a clock that stands until it is told to go on."""

    listen: HttpListen
    now: float = 1000.0
    counted: Counter[str] = attrs.field(factory=Counter)
    admission: HttpAdmission = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        tokens = Tokens(self.listen, TokenFile(Path("/nonexistent")), redact=Redactors())
        self.admission = HttpAdmission(self.listen, tokens, count=self._count, clock=lambda: self.now)

    def _count(self, reason: str) -> None:
        self.counted[reason] += 1


def hall(**listen: Any) -> Hall:
    """An admission with these settings, and `CI` and `ANN` let in unless they say otherwise."""
    return Hall(HttpListen(**{"tokens": (CI, ANN), **listen}))
