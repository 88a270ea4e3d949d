"""The workspace of one client: the directory that it works in, as it says so or as it can be told.

What a client names itself (`mcpd connect --workspace`, `MCPD_WORKSPACE`, the header `Mcpd-Workspace`) counts
before the first `file:` root that it declares, and that before the directory in which its bridge was started.
It is looked for when a server first needs it, and again once the client's roots have changed. What cannot be
used is told to nobody before that; nothing else is taken in its place.
"""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import trio

from daemon.errors import CallError
from daemon.host import paths
from daemon.safety.escape import visible
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


MAX_PATH = 4096
"""Bytes of the longest path that is looked at: PATH_MAX of Linux."""

MAX_SHOWN = 200
"""Characters of the longest directory that is shown whole."""

LOOK_SECONDS = 5.0
"""Seconds in which the file system has to say what a directory is: one on a server that is gone never does."""

AT_ONCE = 4
"""Directories looked at a time: while a file system hangs, that takes no more of the daemon's threads."""

MAX_LOOKS = 3
"""How often it is looked for again at a time because roots have changed meanwhile."""

SET_IT = (
    "Name an existing directory by its absolute path: mcpd connect --workspace DIR, MCPD_WORKSPACE, or the"
    " header Mcpd-Workspace"
)
"""What to do about a workspace that cannot be used."""

looking = trio.CapacityLimiter(AT_ONCE)


class OwnWorkspace:
    """The directory that one client works in, once that is known."""

    def __init__(self, allowed: tuple[str, ...] | None = None) -> None:
        """Begin with a client that has named none.

        Args:
            allowed: globs of what it may name; None is anything.
        """
        self._allowed = allowed
        self.is_known = True
        """Whether it was looked for; what it is may be that there is none."""
        self.directory: str | None = None
        """The directory, absolute and normalised; None if there is none."""
        self.fault = ""
        """Why what the client has named cannot be used, and what to do, without the last full stop; empty if
        nothing is wrong."""
        self.version = 0
        """Changes whenever it may have become another one."""
        self._named: object = None
        self._started_in: object = None
        self._roots: Callable[[bytes | None], Awaitable[Sequence[str]]] | None = None
        self._under_way: trio.Event | None = None

    @property
    def shown(self) -> str:
        """The directory, or what is wrong, as `mcpd status` shows it; empty while nobody has needed it."""
        return shown(self.directory) if self.directory is not None else self.fault

    def take_hello(self, said: Mapping[str, object]) -> None:
        """Take over what a bridge or a door says: what the client has named, and where the bridge runs."""
        self._named, self._started_in = said.get("workspace"), said.get("directory")
        self.changed()

    def is_in(self, globs: tuple[str, ...]) -> bool:
        """Whether one of these globs fits the directory that the client has named, or that its bridge runs in.

        That is known before its first request. What a client may not work in fits none.
        """
        said = self._started_in if self._named is None else self._named
        allowed = globs if self._allowed is None else self._allowed
        return isinstance(said, str) and _fits(said, globs) and _fits(said, allowed)

    def have_roots(self, ask: Callable[[bytes | None], Awaitable[Sequence[str]]]) -> None:
        """Ask the client for its roots from now on: it has declared some.

        Args:
            ask: returns their URIs, given the client's request on whose account it is asked.
        """
        self._roots = ask
        self.changed()

    def changed(self) -> None:
        """Look for it again when it is needed next: the client's roots are others."""
        self.is_known = False
        self.version += 1

    async def find(self, request_id: bytes | None = None) -> None:
        """Return once it is known; one who waits looks for all.

        Args:
            request_id: the client's request that needs it; the client may be asked for its roots with that.
        """
        while not self.is_known:
            if self._under_way is not None:
                await self._under_way.wait()
                continue
            done = self._under_way = trio.Event()
            try:
                await self._find(request_id)
            finally:
                self._under_way = None
                done.set()

    async def _find(self, request_id: bytes | None) -> None:
        for _ in range(MAX_LOOKS):
            version = self.version
            self.directory, self.fault = await self._searched(request_id)
            if version == self.version:
                break
        self.is_known = True

    async def _searched(self, request_id: bytes | None) -> tuple[str | None, str]:
        if self._named is not None:
            return await self._looked_at(self._named, implied=False)
        untold = ""
        if self._roots is not None:
            try:
                found = await self._looked_at(first_directory(await self._roots(request_id)), implied=True)
            except (CallError, RemoteError) as error:
                found, untold = NONE, f"the client was asked for its roots, and has not told them: {error}."
            if found != NONE:
                return found
        found = await self._looked_at(self._started_in, implied=True)
        return (None, f"{untold} {SET_IT}" if untold else "") if found == NONE else found

    async def _looked_at(self, said: object, *, implied: bool) -> tuple[str | None, str]:
        """The directory that was named, if this client may work there (`_looked_at`)."""
        if self._allowed is None or said is None:
            return await _looked_at(said, implied=implied)
        # Before the look, or the answer would tell which directories there are; and after, because of links.
        if not isinstance(said, str) or not _fits(said, self._allowed):
            return None, _refused(said)
        found, fault = await _looked_at(said, implied=implied)
        return (found, fault) if found is None or _fits(found, self._allowed) else (None, _refused(said))


def _fits(path: str, allowed: tuple[str, ...]) -> bool:
    home, path = str(paths.home(os.environ)), os.path.normpath(path)
    return any(fnmatchcase(path, home + glob[1:] if glob.startswith("~/") else glob) for glob in allowed)


def _refused(said: object) -> str:
    where = shown(said.encode(errors="backslashreplace").decode()) if isinstance(said, str) else "that it names"
    return (
        f"this client may not work in {where}: an operator of mcpd allows directories to a token, or to another"
        " user (`workspaces` in `listen`)"
    )


NONE: tuple[None, str] = (None, "")
"""No workspace, and nothing wrong with that."""


async def _looked_at(said: object, *, implied: bool) -> tuple[str | None, str]:
    """The directory that was named, and what is wrong with it; neither if it counts as none.

    Args:
        said: a path, if nothing is wrong with it.
        implied: whether nobody has named it as the workspace: `/` and a home directory are none then.
    """
    if said is None:
        return NONE
    if fault := fault_of_path(said):
        return None, fault
    with trio.move_on_after(LOOK_SECONDS):
        look = partial(directory_at, str(said), implied=implied)
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=looking)
    return None, _fault(str(said), f"cannot be looked at: there was no answer for {LOOK_SECONDS:g} s")


def fault_of_path(said: object) -> str:
    """What is wrong with the path of a workspace, as far as it can be read from it; empty if nothing is."""
    if not isinstance(said, str):
        return f"the workspace that the client names is not a string. {SET_IT}"
    if "\0" in said:
        return _fault(said, "has a NUL character in it")
    if not is_utf8(said):
        return _fault(said, "is not UTF-8")
    if len(said.encode()) > MAX_PATH:
        return _fault(said, f"is longer than {MAX_PATH} bytes")
    if not said.startswith("/"):
        return _fault(said, "is not an absolute path")
    return ""


def directory_at(path: str, *, implied: bool) -> tuple[str | None, str]:
    """What an absolute path leads to, normalised, and what is wrong with it. Blocks.

    Args:
        path: the path.
        implied: whether nobody has named it as the workspace: `/` and a home directory are none then.
    """
    try:
        real = os.path.realpath(path, strict=True)
        is_directory = stat.S_ISDIR(os.stat(real).st_mode)  # noqa: PTH116 - what may be anything stays a string
    except FileNotFoundError:
        return None, _fault(path, "does not exist where mcpd runs")
    except OSError as error:
        return None, _fault(path, f"cannot be looked at: {error.strerror or error}")
    if implied and real in {"/", os.path.realpath(paths.home(os.environ))}:
        return NONE
    fault = _fault_of_place(real, is_directory=is_directory)
    return (None, _fault(path, fault)) if fault else (real, "")


def _fault_of_place(real: str, *, is_directory: bool) -> str:
    if not is_directory:
        return "is not a directory"
    if real == "/":
        return "is the root of the file system, which is nobody's workspace"
    if not os.access(real, os.X_OK):
        return "must not be entered by the user that mcpd runs as"
    return "" if is_utf8(real) else "is not UTF-8"


def first_directory(uris: Sequence[str]) -> str | None:
    """The path of the first root that is a directory here; None if there is none."""
    for uri in uris:
        try:
            parts = urlsplit(uri)
            if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
                return unquote(parts.path, errors="strict")
        except ValueError:
            continue
    return None


def is_utf8(path: str) -> bool:
    """Whether a path can be written in a message: a file system takes any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(directory: str) -> str:
    """A directory as people are shown it: the home directory abbreviated, hidden characters spelt out."""
    short = visible(paths.abbreviated(directory, os.environ.get("HOME", "")))
    return short if len(short) <= MAX_SHOWN else f"…{short[-MAX_SHOWN:]}"


def _fault(path: str, why: str) -> str:
    # Surrogates cannot be written anywhere: what the file system says in other bytes is shown as escapes.
    printable = visible(path[:MAX_SHOWN].encode(errors="backslashreplace").decode())
    return f"workspace '{printable}{'…' if len(path) > MAX_SHOWN else ''}' {why}. {SET_IT}"
