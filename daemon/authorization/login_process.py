"""A login in a process of its own: told and says messages, a line each, on stdin and stdout (`messages`)."""

from __future__ import annotations

import enum
import hmac
import logging
import os
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import attrs
import h11
import msgspec
import trio

from daemon.authorization.guarded_http import CODE, guarded_client
from daemon.authorization.login import LoginFlow
from daemon.authorization.logins import (
    Answer,
    Done,
    Failed,
    LoginsTrouble,
    NoLogin,
    Said,
    Told,
    Wish,
    logins_in,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.authorization.logins import Login, Logins


HOST = "127.0.0.1"
PATH = "/callback"

REQUEST_SECONDS = 10.0
"""For a browser to send its request and take the page, over loopback."""

MAX_REQUEST = 64 * 1024
"""Bytes of a request's head: codes of some thousand bytes are in it, and cookies of everything on 127.0.0.1."""

MAX_CONNECTIONS = 64
"""Read at once; browsers open some that they do not use. With more of them the oldest is given up: nobody on
this machine keeps the browser out by saying nothing."""

MAX_FIELDS = 32
"""Parameters of an answer that are looked at; it has five at most (RFC 6749, 4.1.2; RFC 9207)."""

Fields = Mapping[str, str]


class Outcome(enum.Enum):
    """What became of something that claims to be the answer: an HTTP status, and what the user is told."""

    TAKEN = 200, "mcpd has the answer. You can close this window: how it went is said where you began."
    OTHER_LOGIN = (
        400,
        "This belongs to another login, which is over. Open the newest link; this window can be closed.",
    )
    AGAIN = 409, "This login was answered before. You can close this window."
    GARBAGE = 400, "This is no answer of an authorization server. You can close this window."
    NOT_HERE = 404, "There is nothing here."
    NOT_THUS = 405, "This page is only for reading."

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def text(self) -> str:
        """For the user."""
        return self.value[1]


@attrs.define(eq=False)
class Redirect:
    """A login's way back, and the one answer that is taken."""

    port: int
    """Of 127.0.0.1."""
    state: str | None = None
    """Of this login (RFC 6749, section 10.12); None until there is a link."""
    _answer: Fields | None = None
    _refusal: str | None = None
    _answered: trio.Event = attrs.field(factory=trio.Event)

    @property
    def url(self) -> str:
        """Where the browser is sent."""
        return f"http://{HOST}:{self.port}{PATH}"

    def take(self, query: str) -> Outcome:
        """Take an answer if it is that of this login, and the first."""
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
        """Take the address that the user's browser ended at; what is none ends the login with a word on it."""
        parts = _split(text.strip())
        if parts is None or parts[0] != self.url:
            self._refuse(f"it does not begin with {self.url}?")
            return
        match self.take(parts[1]):
            case Outcome.OTHER_LOGIN:
                self._refuse("it answers another login, so the link that was opened is not the newest")
            case Outcome.GARBAGE:
                self._refuse("there is no answer in it")

    def _refuse(self, why: str) -> None:
        if not self._answered.is_set():
            self._refusal = (
                f"what was pasted is not the address at which the browser ended: {why}. Begin again, open the"
                " link, and paste the whole address"
            )
            self._answered.set()

    async def answer(self) -> Fields:
        """Wait for the answer: `code` and `state`, and maybe `iss`.

        Raises:
            NoLogin: the authorization server, or the user there, has refused, or something else was pasted.
        """
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
    """A url without its query, and its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts._replace(query="", fragment="").geturl(), parts.query


async def listen(nursery: trio.Nursery, port: int | None) -> Redirect:
    """A way back, listened to for as long as the nursery is open.

    Args:
        nursery: in which the listener runs.
        port: the port; None: any that is free.

    Raises:
        NoLogin: the port is taken.
    """
    try:
        listeners = await trio.open_tcp_listeners(port or 0, host=HOST)
    except OSError as error:
        raise NoLogin(
            f"port {port} of {HOST}, which the browser is to come back to, cannot be listened on:"
            f" {error.strerror}. Choose another redirectPort, or see what has it"
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
    """Read a request and answer it with a page."""
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
    # A browser that looks ahead asks for the head only, and must not use up the answer.
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


LOGIN_SECONDS = 600.0
"""For a login: a user who has to find a password and a telephone needs some minutes, no link lasts longer."""

MAX_LINE = 1 << 20
"""Bytes of a line that we are told: an address of some thousand characters is the longest."""

RECEIVED = 1 << 16
"""Bytes that are read at once."""

_told = msgspec.json.Decoder(Told)


@attrs.define(eq=False)
class Lines:
    """What we are told, line by line."""

    source: trio.abc.ReceiveStream
    _rest: bytearray = attrs.field(factory=bytearray)

    async def next(self) -> Wish | Answer | None:
        """The next message; None at the end, or after a line that is none."""
        while b"\n" not in self._rest:
            chunk = await self.source.receive_some(RECEIVED)
            if not chunk or len(self._rest) > MAX_LINE:
                return None
            self._rest += chunk
        line, _, rest = self._rest.partition(b"\n")
        self._rest = rest
        try:
            told: Wish | Answer = _told.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return told


async def serve(lines: Lines, say: Callable[[Said], Awaitable[None]]) -> None:
    """Do one login, and say how it went; without a word if nobody listens any more.

    Args:
        lines: what we are told.
        say: says something.
    """
    wish = await lines.next()
    if not isinstance(wish, Wish):
        return
    async with trio.open_nursery() as nursery:
        try:
            result: Done | Failed = await _login(wish, lines, say, nursery)
        except (NoLogin, LoginsTrouble) as error:
            result = Failed(str(error))
        except Exception as error:  # noqa: BLE001 - its text, and a traceback, may hold secrets
            result = Failed(f"mcpd has made a mistake ({type(error).__name__}): please report it")
        await say(result)
        nursery.cancel_scope.cancel()


async def _login(
    wish: Wish, lines: Lines, say: Callable[[Said], Awaitable[None]], nursery: trio.Nursery
) -> Done:
    """Do the login.

    Raises:
        NoLogin: it does not come about.
        LoginsTrouble: it cannot be kept.
    """
    try:
        logins = logins_in(Path(wish.directory), secret_service=wish.secret_service)
    except ImportError:
        raise NoLogin(
            "logins in the Secret Service need the extra: pip install 'mcpd-supervisor[secret-service]'"
        ) from None
    with trio.move_on_after(LOGIN_SECONDS):
        redirect = await listen(nursery, wish.redirect_port)
        nursery.start_soon(_hear, lines, redirect, nursery.cancel_scope)
        async with guarded_client(wish.url) as client:
            login = await LoginFlow(wish, redirect, client, say).run()
        await trio.to_thread.run_sync(_keep, logins, wish.server, login)
        return Done(login.scope, login.expires_at)
    raise NoLogin(f"nobody has finished the login within {LOGIN_SECONDS / 60:g} minutes: begin again")


async def _hear(lines: Lines, redirect: Redirect, login: trio.CancelScope) -> None:
    """Take pasted answers, and give up when whoever began the login has gone."""
    while (told := await lines.next()) is not None:
        if isinstance(told, Answer):
            redirect.take_pasted(told.url)
    login.cancel()


def _keep(logins: Logins, server: str, login: Login) -> None:
    with logins.locked(server):
        logins.write(server, login)


async def main() -> None:
    """Do the login that stdin asks for."""
    out = trio.lowlevel.FdStream(os.dup(sys.stdout.fileno()))

    async def say(message: Said) -> None:
        await out.send_all(msgspec.json.encode(message) + b"\n")

    await serve(Lines(trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))), say)


if __name__ == "__main__":
    # The SDK logs what fails, with the answers of the authorization server.
    logging.disable()
    try:
        trio.run(main)
    except Exception as error:  # noqa: BLE001 - a traceback may hold secrets, and mostly nobody is left to hear it
        sys.exit(f"the login ended: {type(error).__name__}")
