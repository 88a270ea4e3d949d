"""Runs a login in a process of its own, which exchanges one message a line over stdin and stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import msgspec
import trio

from daemon.authorization import logins
from daemon.authorization.guarded_http import guarded_client
from daemon.authorization.login import LoginFlow
from daemon.authorization.machine_login import MachineLogin
from daemon.authorization.redirect import Redirect, listen
from daemon.protocol import decoded

LOGIN_SECONDS = 600.0  # longest login: a user may look for a password and a telephone, and no link lasts longer

MAX_LINE = 1 << 20  # bytes of a received line: the longest is an address of some thousand characters

RECEIVED = 1 << 16  # bytes of one read

_told = msgspec.json.Decoder(logins.Told)


@attrs.define(eq=False)
class Lines:
    """The messages on stdin, line by line."""

    source: trio.abc.ReceiveStream
    _rest: bytearray = attrs.field(factory=bytearray)

    async def next(self) -> logins.Wish | logins.MachineWish | logins.Answer | None:
        """The next message; None at the end, or after an invalid line."""
        while b"\n" not in self._rest:
            chunk = await self.source.receive_some(RECEIVED)
            if not chunk or len(self._rest) > MAX_LINE:
                return None
            self._rest += chunk
        line, _, rest = self._rest.partition(b"\n")
        self._rest = rest
        told: logins.Wish | logins.MachineWish | logins.Answer | None = decoded(_told.decode, line)
        return told


async def serve(lines: Lines, say: Callable[[logins.Said], Awaitable[None]]) -> None:
    """Do one login and report its result; say nothing if the caller has gone."""
    wish = await lines.next()
    if not isinstance(wish, logins.Wish | logins.MachineWish):
        return
    async with trio.open_nursery() as nursery:
        try:
            if isinstance(wish, logins.MachineWish):
                nursery.start_soon(_hear, lines, None, nursery.cancel_scope)
                async with guarded_client(wish.url) as client:
                    result: logins.Done | logins.Failed = logins.Done(
                        login=await MachineLogin(wish, client).run()
                    )
            else:
                result = await _login(wish, lines, say, nursery)
        except (logins.NoLogin, logins.LoginsTrouble) as error:
            result = logins.Failed(str(error), temporary=isinstance(error, logins.NotNow))
        except Exception as error:  # noqa: BLE001 - its text, and a traceback, may hold secrets
            result = logins.Failed(f"internal error in mcpd ({type(error).__name__}): please report it")
        await say(result)
        nursery.cancel_scope.cancel()


async def _login(
    wish: logins.Wish, lines: Lines, say: Callable[[logins.Said], Awaitable[None]], nursery: trio.Nursery
) -> logins.Done:
    """Log in and keep the login. Raises `NoLogin`: the login failed; `LoginsTrouble`: it cannot be kept."""
    try:
        store = logins.logins_in(Path(wish.directory), secret_service=wish.secret_service)
    except ImportError:
        raise logins.NoLogin(
            "logins in the Secret Service need the extra: pip install 'mcpd-supervisor[secret-service]'"
        ) from None
    with trio.move_on_after(LOGIN_SECONDS):
        redirect = await listen(nursery, wish.redirect_port)
        nursery.start_soon(_hear, lines, redirect, nursery.cancel_scope)
        async with guarded_client(wish.url) as client:
            login = await LoginFlow(wish, redirect, client, say).run()
        await trio.to_thread.run_sync(_keep, store, wish.server, login)
        return logins.Done(login.scope, login.expires_at)
    raise logins.NoLogin(f"nobody has finished the login within {LOGIN_SECONDS / 60:g} minutes: begin again")


async def _hear(lines: Lines, redirect: Redirect | None, login: trio.CancelScope) -> None:
    while (told := await lines.next()) is not None:
        if isinstance(told, logins.Answer) and redirect is not None:
            redirect.take_pasted(told.url)
    login.cancel()


def _keep(store: logins.Logins, server: str, login: logins.Login) -> None:
    with store.locked(server):
        store.write(server, login)


async def main() -> None:
    """Do the login that stdin asks for."""
    out = trio.lowlevel.FdStream(os.dup(sys.stdout.fileno()))

    async def say(message: logins.Said) -> None:
        await out.send_all(msgspec.json.encode(message) + b"\n")

    await serve(Lines(trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))), say)


if __name__ == "__main__":
    # The SDK logs failures with the answers of the authorization server.
    logging.disable()
    try:
        trio.run(main)
    except Exception as error:  # noqa: BLE001 - a traceback may hold secrets, and nobody is left to read it
        sys.exit(f"the login ended: {type(error).__name__}")
