"""The workspace of one client: the directory that it works in.

The client's own choice wins over its first `file:` root, which wins over its bridge's directory. mcpd finds the
workspace when a server first needs it, and again after changes of the roots; an unusable one is not replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from urllib.parse import unquote, urlsplit

import trio

from daemon.errors import CallError
from daemon.host import paths
from daemon.safety.escape import visible
from daemon.wire.envelope import RemoteError

MAX_PATH = 4096
"""Bytes of the longest path examined: PATH_MAX of Linux."""

MAX_SHOWN = 200
"""Characters of the longest directory shown unabridged."""

RESOLVE_SECONDS = 5.0
"""Seconds for the file system to answer: a network file system without its server never does."""

AT_ONCE = 4
"""Directories examined at a time: a hanging file system blocks a thread for each."""

MAX_LOOKS = 3
"""Repetitions of a search during which the roots have changed."""

SET_IT = (
    "Name an existing directory by its absolute path: mcpd connect --workspace DIR, MCPD_WORKSPACE, or the"
    " header Mcpd-Workspace"
)

looking = trio.CapacityLimiter(AT_ONCE)


class OwnWorkspace:
    """The directory that one client works in."""

    def __init__(self, allowed: tuple[str, ...] | None = None) -> None:
        """`allowed` are globs of the directories that the client may name; None allows any."""
        self._allowed = allowed
        self.is_known = True
        self.directory: str | None = None
        """The normalised absolute path; None if there is none."""
        self.fault = ""
        """Why the chosen directory cannot be used, with the remedy and without a final full stop; else empty.
        """
        self.version = 0
        self._named: object = None
        self._started_in: object = None
        self._roots: Callable[[bytes | None], Awaitable[Sequence[str]]] | None = None
        self._finding = trio.Lock()

    @property
    def shown(self) -> str:
        """The directory or its fault, as `mcpd status` shows them; empty until the workspace is needed."""
        return shown(self.directory) if self.directory is not None else self.fault

    def take_hello(self, hello: Mapping[str, object]) -> None:
        """Read the client's choice and the bridge's directory from a hello."""
        self._named, self._started_in = hello.get("workspace"), hello.get("directory")
        self.changed()

    def is_in(self, globs: tuple[str, ...]) -> bool:
        """Whether a glob matches the named directory or the bridge's; checks no file system."""
        directory = self._started_in if self._named is None else self._named
        allowed = globs if self._allowed is None else self._allowed
        return isinstance(directory, str) and _fits(directory, globs) and _fits(directory, allowed)

    def have_roots(self, ask: Callable[[bytes | None], Awaitable[Sequence[str]]]) -> None:
        """Use the client's roots from now on; `ask` requests their URIs, on behalf of a request."""
        self._roots = ask
        self.changed()

    def changed(self) -> None:
        """Search again when the workspace is next needed, because the client's roots have changed."""
        self.is_known = False
        self.version += 1

    async def find(self, request_id: bytes | None = None) -> None:
        """Return once the workspace is known; this may ask the client for its roots as part of `request_id`."""
        async with self._finding:
            if not self.is_known:
                await self._find(request_id)

    async def _find(self, request_id: bytes | None) -> None:
        for _ in range(MAX_LOOKS):
            version = self.version
            self.directory, self.fault = await self._searched(request_id)
            if version == self.version:
                break
        self.is_known = True

    async def _searched(self, request_id: bytes | None) -> tuple[str | None, str]:
        if self._named is not None:
            return await self._resolved(self._named, implied=False)
        untold = ""
        if self._roots is not None:
            try:
                found = await self._resolved(first_directory(await self._roots(request_id)), implied=True)
            except (CallError, RemoteError) as error:
                found, untold = NONE, f"the client was asked for its roots, and has not named them: {error}."
            if found != NONE:
                return found
        found = await self._resolved(self._started_in, implied=True)
        return (None, f"{untold} {SET_IT}" if untold else "") if found == NONE else found

    async def _resolved(self, named: object, *, implied: bool) -> tuple[str | None, str]:
        if self._allowed is None or named is None:
            return await _resolved(named, implied=implied)
        # Before, or the answer would tell which directories exist; and after, because of links.
        if not isinstance(named, str) or not _fits(named, self._allowed):
            return None, _refused(named)
        found, fault = await _resolved(named, implied=implied)
        return (found, fault) if found is None or _fits(found, self._allowed) else (None, _refused(named))


def _fits(path: str, allowed: tuple[str, ...]) -> bool:
    home, path = str(paths.home(os.environ)), os.path.normpath(path)
    return any(fnmatchcase(path, home + glob[1:] if glob.startswith("~/") else glob) for glob in allowed)


def _refused(named: object) -> str:
    where = (
        shown(named.encode(errors="backslashreplace").decode())
        if isinstance(named, str)
        else "the directory that it names"
    )
    return (
        f"this client may not work in {where}: an operator of mcpd must allow it for the token or the"
        " user (`workspaces` in `listen`)"
    )


NONE: tuple[None, str] = (None, "")


async def _resolved(named: object, *, implied: bool) -> tuple[str | None, str]:
    """The named directory and its fault; `NONE` if it does not count as a workspace (`directory_at`)."""
    if named is None:
        return NONE
    if fault := fault_of_path(named):
        return None, fault
    with trio.move_on_after(RESOLVE_SECONDS):
        look = partial(directory_at, str(named), implied=implied)
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=looking)
    return None, _fault(str(named), f"cannot be read: there was no answer for {RESOLVE_SECONDS:g} s")


def fault_of_path(named: object) -> str:
    """The fault in a workspace's path as text; empty if there is none."""
    if not isinstance(named, str):
        return f"the workspace that the client names is not a string. {SET_IT}"
    if "\0" in named:
        return _fault(named, "has a NUL character in it")
    if not paths.is_utf8(named):
        return _fault(named, "is not UTF-8")
    if len(named.encode()) > MAX_PATH:
        return _fault(named, f"is longer than {MAX_PATH} bytes")
    if not named.startswith("/"):
        return _fault(named, "is not an absolute path")
    return ""


def directory_at(path: str, *, implied: bool) -> tuple[str | None, str]:
    """The directory at an absolute path, and its fault; blocks. If `implied`, neither `/` nor home counts."""
    try:
        real = os.path.realpath(path, strict=True)
        is_directory = stat.S_ISDIR(os.stat(real).st_mode)  # noqa: PTH116 - what may be anything stays a string
    except FileNotFoundError:
        return None, _fault(path, "does not exist where mcpd runs")
    except OSError as error:
        return None, _fault(path, f"cannot be read: {error.strerror or error}")
    if implied and real in {"/", os.path.realpath(paths.home(os.environ))}:
        return NONE
    fault = _fault_of_place(real, is_directory=is_directory)
    return (None, _fault(path, fault)) if fault else (real, "")


def _fault_of_place(real: str, *, is_directory: bool) -> str:
    if not is_directory:
        return "is not a directory"
    if real == "/":
        return "is the root of the file system, which cannot be a workspace"
    if not os.access(real, os.X_OK):
        return "cannot be entered by mcpd's user"
    return "" if paths.is_utf8(real) else "is not UTF-8"


def first_directory(uris: Sequence[str]) -> str | None:
    """The path of the first root that is on this machine; None if there is none."""
    for uri in uris:
        try:
            parts = urlsplit(uri)
            if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
                return unquote(parts.path, errors="strict")
        except ValueError:
            continue
    return None


def shown(directory: str) -> str:
    """A directory as people read it: `~` for the home directory, hidden characters spelt out."""
    short = visible(paths.abbreviated(directory, os.environ.get("HOME", "")))
    return short if len(short) <= MAX_SHOWN else f"…{short[-MAX_SHOWN:]}"


def _fault(path: str, why: str) -> str:
    # Surrogates cannot be written: other bytes of the file system are shown as escapes.
    printable = visible(path[:MAX_SHOWN].encode(errors="backslashreplace").decode())
    return f"workspace '{printable}{'…' if len(path) > MAX_SHOWN else ''}' {why}. {SET_IT}"
