"""Runs logins, each in its own process; callers with the same wish share one.

A login with another wish, such as other scopes, ends the first one, because there is one user; a login also
ends with its last caller. mcpd's own logins (`auth`) need no user; their tokens are kept here, in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs
import msgspec
import trio
from loguru import logger

import daemon
from daemon.authorization.logins import (
    Answer,
    DeviceCode,
    Done,
    Failed,
    FileLogins,
    Login,
    LoginPage,
    LoginsTrouble,
    NoLogin,
    NotNow,
    Renewals,
    Report,
    ServerLogins,
    Wish,
    login_url,
    union,
)
from daemon.config.config_model import Server
from daemon.errors import McpdError, RunError
from daemon.history.event import Event, EventKind
from daemon.processes.children import Children
from daemon.protocol import decoded

MAX_RUNNING = 4  # concurrent logins: each takes 63 MiB, and a user opens one page after the other

LOGIN_SECONDS = 660.0  # longest login: its process gives up after ten minutes and reports that

OWN_SECONDS = 60.0  # for a login of mcpd itself, which waits for other programs alone

MAX_LINE = 64 * 1024  # bytes of a line from the process: eight times the longest URL that browsers take

MAX_ANSWERS = 4  # pasted answers that wait for the process, which reads them at once

STOP_SECONDS = 0.5
"""Seconds for the process to end after its stdin closes, and again after SIGTERM; killing it loses nothing."""

PASSED_ON = (
    *("HOME", "LANG", "LOGNAME", "PATH", "USER"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
)  # environment of the process: places of certificates and of the Secret Service, and no secret

PROGRAM = (sys.executable, "-P", "-m", "daemon.authorization.login_process")
"""The command of a login process; `-P` keeps the working directory out of its module path."""

_decode = msgspec.json.Decoder(Report).decode


class LoginRefused(McpdError):
    """A login cannot begin or take an answer; the text says why."""


class LoginRun:
    """One login in progress."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.shown: LoginPage | DeviceCode | None = None  # the page or code for the user; None if not yet known
        self.outcome: Done | Failed | None = None  # the result; None while the login runs
        self.scope = trio.CancelScope()
        self.gone = trio.Event()  # set once its process has ended
        self.answers, self.given = trio.open_memory_channel[Answer](MAX_ANSWERS)
        self._shown, self._over = trio.Event(), trio.Event()
        self._participants = 0

    def __repr__(self) -> str:
        """Leaves the link out: anyone who has it can log in."""
        return f"<LoginRun {self.wish.server}: {type(self.outcome).__name__}>"

    def join(self) -> None:
        """Count a waiting caller."""
        self._participants += 1

    def leave(self) -> None:
        """Stop counting a waiting caller; the login ends with the last one."""
        self._participants -= 1
        if not self._participants:
            self.end(Failed("no command waits for this login any more"))

    async def wait_shown(self) -> LoginPage | DeviceCode | None:
        """Wait for the page or code to show to the user; None if the login ends before."""
        await self._shown.wait()
        return self.shown

    async def wait_over(self) -> Done | Failed:
        """Wait for the result."""
        await self._over.wait()
        assert self.outcome is not None
        return self.outcome

    def answer(self, url: str) -> None:
        """Pass on the address at which the browser ended. Raises LoginRefused if too many wait to be read."""
        try:
            self.answers.send_nowait(Answer(url))
        except trio.WouldBlock:
            raise LoginRefused("several answers are waiting already: one is enough") from None

    def show(self, page: LoginPage | DeviceCode) -> None:
        """Give the page or code to the waiting callers."""
        self.shown = page
        self._shown.set()

    def end(self, outcome: Done | Failed) -> None:
        """End the login with a result, unless it has one already, and stop its process."""
        if self.outcome is None:
            self.outcome = outcome
            self._shown.set()
            self._over.set()
            self.scope.cancel()


class OwnLogin(Renewals, kw_only=True):
    """mcpd's own login at one server."""

    wish: Wish
    login: Login | None = None


class LoginRuns:
    """The logins in progress at all servers."""

    def __init__(
        self, logins: ServerLogins, state: Path, children: Children, program: tuple[str, ...] = PROGRAM
    ) -> None:
        self.logins = logins
        logins.obtain = self.obtain
        self._own: dict[str, OwnLogin] = {}
        self._places = trio.CapacityLimiter(MAX_RUNNING)
        self._program = program
        self._state = state
        self._children = children
        self._running: dict[str, LoginRun] = {}
        self._nursery: trio.Nursery | None = None
        self._on_change: Callable[[str], None] = lambda _server: None
        self._note: Callable[[Event], None] = lambda _event: None

    async def run(
        self, on_change: Callable[[str], None], note: Callable[[Event], None] = lambda _event: None
    ) -> None:
        """Run logins until cancelled; `on_change` is called with the server's name after each success."""
        self._on_change, self._note = on_change, note
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def under_way(self, server: str) -> LoginRun | None:
        """The login in progress at a server; None without one."""
        return self._running.get(server)

    async def join(self, server: Server, *, scope: str | None = None, device: bool = False) -> LoginRun:
        """Begin a login, or join the one in progress; the caller must `leave` it.

        Without `scope`, uses the configured scopes and those that the server asked for; `device` uses the
        device flow if offered. Raises LoginRefused if too many logins are in progress, or the daemon is
        stopping.
        """
        wish = await self._wish(server, scope, device=device)
        while (run := self._running.get(server.name)) is not None:
            if run.wish == wish and run.outcome is None:
                run.join()
                return run
            run.end(Failed("another login at this server has begun"))
            # Its process may hold the port that the browser comes back to.
            await run.gone.wait()
        if len(self._running) >= MAX_RUNNING or self._nursery is None:
            raise LoginRefused(f"{MAX_RUNNING} logins are under way: wait for one to end, or end it")
        run = self._running[server.name] = LoginRun(wish)
        run.join()
        self._nursery.start_soon(self._carry_out, run)
        return run

    async def obtain(self, server: Server, rejected: str | None) -> Login:
        """Log in to a server with `auth`, unless a login is good. Raises NoLogin, or NotNow to try later."""
        assert server.auth is not None
        wish = Wish(server=server.name, url=login_url(server), auth=server.auth)
        own = self._own.get(server.name)
        if own is None or own.wish != wish:
            own = self._own[server.name] = OwnLogin(wish=wish)

        async def renew() -> Login:
            if own.login is None or not own.login.serves(rejected):
                own.login = await self._obtained(wish)
            return own.login

        if own.login is not None and own.login.serves(rejected):
            return own.login
        return await own.renewed(own.login, rejected, renew, NotNow)

    async def _obtained(self, wish: Wish) -> Login:
        outcome: Done | Failed = Failed(f"no token within {OWN_SECONDS:g} s", temporary=True)
        try:
            async with self._places:
                with trio.move_on_after(OWN_SECONDS):
                    outcome = await self._talk(LoginRun(wish))
        except RunError as error:
            outcome = Failed(f"the login cannot be begun: {error}", temporary=True)
        if isinstance(outcome, Done) and outcome.login is not None:
            logger.bind(server=wish.server).debug("mcpd has logged in")
            return outcome.login
        assert isinstance(outcome, Failed)
        raise (NotNow if outcome.temporary else NoLogin)(outcome.message)

    def changed(self, server: str) -> None:
        """Record that a login at a server was made or has ended."""
        self.logins.satisfied(server)
        self._on_change(server)

    async def _wish(self, server: Server, scope: str | None, *, device: bool) -> Wish:
        oauth, url = server.login, login_url(server)
        assert oauth is not None
        if scope is None:
            granted: str | None = None
            with suppress(LoginsTrouble):
                login = await trio.to_thread.run_sync(self.logins.kept.read, server.name, url)
                granted = None if login is None else login.scope
            scope = union(*oauth.scopes, self.logins.wanted(server.name, granted))
        return Wish(
            server=server.name,
            url=url,
            directory=str(self._state),
            secret_service=not isinstance(self.logins.kept, FileLogins),
            scope=scope,
            oauth=attrs.evolve(oauth, device=device or oauth.device),
        )

    async def _carry_out(self, run: LoginRun) -> None:
        server = run.wish.server
        logger.bind(server=server, event=True).info("a login has begun")
        self._note(Event(kind=EventKind.LOGIN, server=server, details={"outcome": "begun"}))
        try:
            with run.scope:
                outcome: Done | Failed = Failed(f"nobody has logged in within {LOGIN_SECONDS:g} s")
                with trio.move_on_after(LOGIN_SECONDS):
                    outcome = await self._talk(run)
                if isinstance(outcome, Done):
                    self.changed(server)
                run.end(outcome)
        except RunError as error:
            run.end(Failed(f"the login cannot be begun: {error}"))
        finally:
            run.end(Failed("the daemon is stopping"))
            del self._running[server]
            run.gone.set()
            done = isinstance(run.outcome, Done)
            words = "there is a login" if done else "a login has ended without success"
            logger.bind(server=server, event=True).info(words)
            text = run.outcome.message if isinstance(run.outcome, Failed) else ""
            details = {"outcome": "succeeded" if done else "failed"}
            self._note(Event(kind=EventKind.LOGIN, server=server, text=text, details=details))

    async def _talk(self, run: LoginRun) -> Done | Failed:
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        # This very code, wherever it was found.
        env["PYTHONPATH"] = str(Path(daemon.__file__).parent.parent)
        command, *args = self._program
        child = await self._children.start(command, args, env, "/", server=run.wish.server)
        stdin, stdout, stderr = map(trio.lowlevel.FdStream, (child.stdin, child.stdout, child.stderr))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_tell, stdin, run)
                nursery.start_soon(_drop, stderr)
                outcome = await _hear(stdout, run)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                for stream in (stdin, stdout, stderr):
                    await trio.aclose_forcefully(stream)
                await self._children.stop(child, eof=STOP_SECONDS, term=STOP_SECONDS)
        return outcome


async def _hear(stdout: trio.abc.ReceiveStream, run: LoginRun) -> Done | Failed:
    rest = b""
    async for chunk in stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if (message := decoded(_decode, line)) is None:
                return Failed("the login's process sent an invalid message: this is an internal error in mcpd")
            if isinstance(message, Done | Failed):
                return message
            run.show(message)
        if len(rest) > MAX_LINE:
            break
    return Failed("the login's process ended without a result: this is an internal error in mcpd")


async def _tell(stdin: trio.abc.SendStream, run: LoginRun) -> None:
    with suppress(trio.BrokenResourceError):
        await stdin.send_all(msgspec.json.encode(run.wish) + b"\n")
        async for answer in run.given:
            await stdin.send_all(msgspec.json.encode(answer) + b"\n")


async def _drop(stderr: trio.abc.ReceiveStream) -> None:
    async for _ in stderr:
        pass
