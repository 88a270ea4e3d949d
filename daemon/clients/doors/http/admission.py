"""Who may come in over HTTP: by Host, Origin and bearer token."""

from __future__ import annotations

import hashlib
import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING

from daemon.clients.doors.http.head import Refusal
from daemon.clients.visitor import Visitor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.doors.http.head import Head
    from daemon.config.listen import HttpListen


class HttpAdmission:
    """Judges the heads of requests."""

    def __init__(self, http: HttpListen) -> None:
        given = http.tokens
        known = {"": given} if isinstance(given, str) else {each.name: each.value for each in given or ()}
        self._known = {hashlib.sha256(value.encode()).digest(): name for name, value in known.items()}

    def greet(self, head: Head) -> None:
        """Check Host and Origin."""

    def visitor(self, head: Head) -> Visitor:
        """Who shows which token."""
        shown = hashlib.sha256(head.headers.get("authorization", "").removeprefix("Bearer ").encode()).digest()
        for digest in self._known:
            if hmac.compare_digest(digest, shown):
                return Visitor()
        raise Refusal(HTTPStatus.UNAUTHORIZED, "a token\n", headers={"www-authenticate": "Bearer"})

    def profile(self, visitor: Visitor, wanted: str | None) -> str:
        """The profile of a path."""
        return wanted or "default"

    def cors(self, head: Head) -> Mapping[str, str]:
        """Headers for browsers."""
        return {}
