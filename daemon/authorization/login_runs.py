"""Logins under way: each a process of its own (`messages`), that whoever wants the same login shares.

A login is wanted by operators (`mcpd login`) and by clients whose calls need one, perhaps by several at a time,
and there is one user: a second one with the same wish joins the first and is shown the same page; one with
another wish (other scopes, say) ends the first. A login that nobody waits for any more ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

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
    LoginPage,
    LoginsTrouble,
    Said,
    Wish,
    login_url,
    union,
)
from daemon.errors import McpdError, RunError
from daemon.history.event import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.authorization.logins import ServerLogins
    from daemon.config.config_model import Server
    from daemon.processes.children import Children


MAX_RUNNING = 4
"""Logins under way at a time: each takes 63 MiB, and a user opens one page after the other."""

LOGIN_SECONDS = 660.0
"""For a login in all: the process gives up by itself after ten minutes, and says so."""

MAX_LINE = 64 * 1024
"""Bytes of a line that the process says: eight times the longest URL that browsers take."""

MAX_ANSWERS = 4
"""Pasted answers that wait for the process; it reads them at once."""

STOP_SECONDS = 0.5
"""For the process to end once its stdin is closed, and again after SIGTERM: nothing would be lost."""

PASSED_ON = (
    *("HOME", "LANG", "LOGNAME", "PATH", "USER"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
)
"""Variables of our environment that the process gets: where certificates and the Secret Service are, and no
secret of anybody's."""

PROGRAM = (sys.executable, "-P", "-m", "daemon.authorization.login_process")
"""What a login runs; `-P` keeps the working directory out of its modules."""

_decode = msgspec.json.Decoder(Said).decode


class LoginRefused(McpdError):
    """A login that cannot be begun, or an answer that cannot be taken; the text says why."""


class LoginRun:
    """One login under way."""

    def __init__(self, wish: Wish) -> None:
        """Begin; nothing is started."""
        self.wish = wish
        self.shown: LoginPage | DeviceCode | None = None
        """What the user has to open; None: not known yet, or never."""
        self.outcome: Done | Failed | None = None
        """How it ended; None: it is under way."""
        self.scope = trio.CancelScope()
        self.gone = trio.Event()
        """Set once its process has ended."""
        self.answers, self.given = trio.open_memory_channel[Answer](MAX_ANSWERS)
        self._shown, self._over = trio.Event(), trio.Event()
        self._participants = 0

    def __repr__(self) -> str:
        """Without the link: whoever has it can log in."""
        return f"<LoginRun {self.wish.server}: {type(self.outcome).__name__}>"

    def join(self) -> None:
        """Note that somebody waits for it."""
        self._participants += 1

    def leave(self) -> None:
        """Note that somebody waits for it no longer."""
        self._participants -= 1
        if not self._participants:
            self.end(Failed("nobody waits for this login any more"))

    async def wait_shown(self) -> LoginPage | DeviceCode | None:
        """Return what the user has to open, once it is known; None if the login ends before."""
        await self._shown.wait()
        return self.shown

    async def wait_over(self) -> Done | Failed:
        """Return how it ended, once it has."""
        await self._over.wait()
        assert self.outcome is not None
        return self.outcome

    def answer(self, url: str) -> None:
        """Pass on the address that the browser ended at.

        Raises:
            LoginRefused: too many answers are waiting.
        """
        try:
            self.answers.send_nowait(Answer(url))
        except trio.WouldBlock:
            raise LoginRefused("several answers are waiting already: one is enough") from None

    def show(self, page: LoginPage | DeviceCode) -> None:
        """Show those who wait what the user has to open."""
        self.shown = page
        self._shown.set()

    def end(self, outcome: Done | Failed) -> None:
        """Tell those who wait how it ended, and stop what is left of it; the first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome
            self._shown.set()
            self._over.set()
            self.scope.cancel()


class LoginRuns:
    """The logins under way at all servers."""

    def __init__(
        self,
        logins: ServerLogins,
        state: Path,
        children: Children,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        """Begin without any.

        Args:
            logins: the logins at all servers.
            state: the state directory.
            children: the daemon's child processes.
            program: what each login runs.
        """
        self.logins = logins
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
        """Carry logins out until cancelled.

        Args:
            on_change: called with the name of a server that there is another login at.
            note: takes what happens.
        """
        self._on_change, self._note = on_change, note
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def under_way(self, server: str) -> LoginRun | None:
        """The login under way at a server, if there is one."""
        return self._running.get(server)

    async def join(self, server: Server, *, scope: str | None = None, device: bool = False) -> LoginRun:
        """Begin a login, or join the one that is under way; whoever calls this has to `leave` it.

        Args:
            server: where; it has a `login`.
            scope: what to ask for; None: what is configured and what the server has wanted.
            device: whether to use the device flow, where it is offered.

        Raises:
            LoginRefused: too many are under way, or the daemon is stopping.
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

    def changed(self, server: str) -> None:
        """Note that there is another login at a server, or none any more."""
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
            client_id=oauth.client_id,
            client_secret=oauth.client_secret,
            metadata_url=oauth.metadata_url,
            redirect_port=oauth.redirect_port,
            device=device or oauth.device,
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
            told = "there is a login" if isinstance(run.outcome, Done) else "a login has ended without success"
            logger.bind(server=server, event=True).info(told)
            done = isinstance(run.outcome, Done)
            text = run.outcome.message if isinstance(run.outcome, Failed) else ""
            outcome_told = {"outcome": "succeeded" if done else "failed"}
            self._note(Event(kind=EventKind.LOGIN, server=server, text=text, details=outcome_told))

    async def _talk(self, run: LoginRun) -> Done | Failed:
        """Start the process, and pass on what it says and what it is told."""
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
    """Take in what the process says, until it has said how the login ended."""
    rest = b""
    async for chunk in stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                said = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return Failed("the login's process does not say what it should: this is a fault of mcpd's own")
            if isinstance(said, Done | Failed):
                return said
            run.show(said)
        if len(rest) > MAX_LINE:
            break
    return Failed("the login's process has ended without a word: this is a fault of mcpd's own")


async def _tell(stdin: trio.abc.SendStream, run: LoginRun) -> None:
    """Tell the process what is wanted, and what is answered."""
    with suppress(trio.BrokenResourceError):
        await stdin.send_all(msgspec.json.encode(run.wish) + b"\n")
        async for answer in run.given:
            await stdin.send_all(msgspec.json.encode(answer) + b"\n")


async def _drop(stderr: trio.abc.ReceiveStream) -> None:
    """Read what the process writes to stderr, and drop it: it may hold what nobody may see."""
    async for _ in stderr:
        pass
