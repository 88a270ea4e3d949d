"""The head of an HTTP request, and the refusal of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http import HTTPStatus


@attrs.frozen(kw_only=True)
class Head:
    """The head of a request."""

    method: str
    """As it was sent: `GET`, `POST`."""
    path: str
    """The path of its target, percent-decoded, without the query."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """By lower-case name; a header that was sent twice has both values, joined by a comma."""
    peer: str
    """The address at the other end of the connection, without its port."""


class Refusal(Exception):
    """A request is not served; carries the response that says so."""

    def __init__(
        self, status: HTTPStatus, text: str, *, headers: Mapping[str, str] | None = None, delay: float = 0.0
    ) -> None:
        """Refuse.

        Args:
            status: the status of the response.
            text: what failed, why, and what to do; it never repeats a secret.
            headers: further headers, such as `WWW-Authenticate`.
            delay: seconds that the response is held back.
        """
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
        self.delay = delay
