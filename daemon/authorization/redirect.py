"""Receives the browser after a login: listens on loopback for one answer (RFC 8252, section 7.3).

Local users and web pages can reach this port, so only an answer with the login's state counts.
"""

from __future__ import annotations

import enum
import hmac
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from urllib.parse import parse_qs, urlsplit

import attrs
import h11
import trio

from daemon.authorization.guarded_http import CODE
from daemon.authorization.logins import NoLogin

HOST = "127.0.0.1"
PATH = "/callback"

REQUEST_SECONDS = 10.0  # for a browser's request and page, over loopback

MAX_REQUEST = 64 * 1024
"""Bytes of a request's head: a code of some thousand bytes, and all cookies of 127.0.0.1."""

MAX_CONNECTIONS = 64
"""Concurrent connections; another one ends the oldest, so that silent ones cannot keep the browser out."""

MAX_FIELDS = 32  # parameters of an answer; a valid one has five at most (RFC 6749, 4.1.2; RFC 9207)

RECEIVED = 65_536  # bytes of one read

Fields = Mapping[str, str]


class Outcome(enum.Enum):
    """The outcome of a request: an HTTP status, and a text for the user."""

    TAKEN = 200, "mcpd has the answer. You can close this window; the result is shown where you began."
    OTHER_LOGIN = (
        400,
        "This page belongs to an earlier login, which is over. Open the newest link; close this window.",
    )
    AGAIN = 409, "This login was answered before. You can close this window."
    GARBAGE = 400, "This is not an answer of an authorization server. You can close this window."
    NOT_HERE = 404, "There is nothing here."
    NOT_THUS = 405, "This page takes only GET requests."

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text


@attrs.define(eq=False)
class Redirect:
    """The redirect target of a login, and the one answer that it accepts."""

    port: int  # of 127.0.0.1
    state: str | None = None  # of this login (RFC 6749, section 10.12); None before there is a link
    _answer: Fields | None = None
    _refusal: str | None = None
    _answered: trio.Event = attrs.field(factory=trio.Event)

    @property
    def url(self) -> str:
        """The redirect URI."""
        return f"http://{HOST}:{self.port}{PATH}"

    def take(self, query: str) -> Outcome:
        """Take the first answer that has this login's state."""
        try:
            parsed = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError:
            return Outcome.GARBAGE
        fields = {name: values[0] for name, values in parsed.items()}
        if any(len(values) > 1 for values in parsed.values()) or not ("code" in fields or "error" in fields):
            return Outcome.GARBAGE
        shown = fields.get("state", "").encode()
        if self.state is None or not hmac.compare_digest(shown, self.state.encode()):
            return Outcome.OTHER_LOGIN
        if self._answered.is_set():
            return Outcome.AGAIN
        self._answer = fields
        self._answered.set()
        return Outcome.TAKEN

    def take_pasted(self, text: str) -> None:
        """Take an address that the user has pasted; any other text ends the login with a reason."""
        parts = _split(text.strip())
        if parts is None or parts[0] != self.url:
            self._refuse(f"it does not begin with {self.url}?")
            return
        match self.take(parts[1]):
            case Outcome.OTHER_LOGIN:
                self._refuse("it answers another login: an older link was opened")
            case Outcome.GARBAGE:
                self._refuse("there is no answer in it")

    def _refuse(self, why: str) -> None:
        if not self._answered.is_set():
            self._refusal = (
                f"the pasted text is not the address at which the browser ended: {why}. Begin again, open the"
                " link, and paste the whole address"
            )
            self._answered.set()

    async def answer(self) -> Fields:
        """Wait for `code`, `state` and perhaps `iss`. Raises `NoLogin` if refused or pasted wrongly."""
        await self._answered.wait()
        if self._refusal is not None:
            raise NoLogin(self._refusal)
        assert self._answer is not None
        error = self._answer.get("error")
        if error is None:
            return self._answer
        if error == "access_denied":
            raise NoLogin(
                "the login was refused at the authorization server: begin again, and agree to it there"
            )
        named = f" ({error})" if CODE.fullmatch(error) else ""
        raise NoLogin(f"the authorization server has refused the login{named}")


def _split(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts._replace(query="", fragment="").geturl(), parts.query


async def listen(nursery: trio.Nursery, port: int | None) -> Redirect:
    """Listen while the nursery is open, on the given or any free port. Raises NoLogin if the port is in use."""
    try:
        listeners = await trio.open_tcp_listeners(port or 0, host=HOST)
    except OSError as error:
        raise NoLogin(
            f"mcpd cannot listen on port {port} of {HOST}, to which the browser returns:"
            f" {error.strerror}. Choose another redirectPort, or stop the program that uses it"
        ) from None
    redirect = Redirect(int(listeners[0].socket.getsockname()[1]))
    under_way = deque[trio.CancelScope]()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with trio.move_on_after(REQUEST_SECONDS) as scope:
                if len(under_way) == MAX_CONNECTIONS:
                    under_way.popleft().cancel()
                under_way.append(scope)
                await _serve(stream, redirect)
            with suppress(ValueError):
                under_way.remove(scope)

    nursery.start_soon(trio.serve_listeners, serve, listeners)
    return redirect


async def _serve(stream: trio.SocketStream, redirect: Redirect) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST)
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(RECEIVED))
        if not isinstance(event, h11.Request):
            return
        for part in _page(_outcome(event, redirect), head_only=event.method == b"HEAD"):
            await stream.send_all(connection.send(part) or b"")
    except (h11.ProtocolError, trio.BrokenResourceError):
        return


def _outcome(request: h11.Request, redirect: Redirect) -> Outcome:
    path, _, query = request.target.decode("ascii", "replace").partition("?")
    if path != PATH:
        return Outcome.NOT_HERE
    # A prefetching browser sends HEAD, which must not consume the answer.
    return redirect.take(query) if request.method == b"GET" else Outcome.NOT_THUS


def _page(outcome: Outcome, *, head_only: bool) -> list[h11.Event]:
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>mcpd</title>'
        f"<p>{escape(outcome.text)}</p></html>\n"
    ).encode()
    headers = [
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("connection", "close"),
    ]
    head = h11.Response(status_code=outcome.status, headers=headers)
    return [head, *([] if head_only else [h11.Data(data=body)]), h11.EndOfMessage()]
