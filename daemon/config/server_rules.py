"""Rules for one server's entry, beyond the types of its values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from daemon.config.jsonc import below
from daemon.config.model import (
    LOGIN_TYPES,
    MAX_PORT,
    WORKSPACE,
    OAuth,
    Server,
    ServerLimits,
    Share,
    StartMode,
    TransportType,
    oauth_faults,
)
from daemon.config.names import SERVER_NAME
from daemon.errors import Fault
from daemon.kit.wording import camel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_T = TransportType

SCHEMES: Mapping[TransportType, tuple[str, ...]] = {
    _T.HTTP: ("http", "https"),
    _T.SSE: ("http", "https"),
    _T.WS: ("ws", "wss"),
    _T.UNIX: ("unix",),
}
"""The schemes that the url of each transport may have."""

_MEANINGLESS: Mapping[TransportType, tuple[str, ...]] = {
    _T.STDIO: ("url", "headers"),
    _T.HTTP: ("command", "args", "env", "env_file", "cwd"),
    _T.SSE: ("command", "args", "env", "env_file", "cwd"),
    _T.WS: ("command", "args", "env", "env_file", "cwd"),
    _T.UNIX: ("command", "args", "env", "env_file", "cwd", "headers"),
}
"""Keys without meaning for a transport: written for a reason, so ignoring them silently would mislead."""

_VARIABLE = re.compile(r"[^=\s]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def infer_type(raw: Mapping[str, object]) -> str:
    """The transport of an entry without `type`: stdio if it has a command, else by the url's scheme."""
    url = raw.get("url")
    if not isinstance(url, str) or isinstance(raw.get("command"), str):
        return "stdio"
    if url.startswith(("ws://", "wss://")):
        return "ws"
    return "unix" if url.startswith(("unix://", "/")) else "http"


def server_faults(server: Server, trail: str) -> Iterator[Fault]:
    """Everything wrong with what one server's entry contains; `missing_faults` finds what it lacks."""
    yield from _meaningless(server, trail)
    if server.enabled:
        yield from _url(server, below(trail, "url"))
        yield from _paths(server, trail)
    yield from _environment(server, trail)
    yield from _tuning(server, trail)
    yield from _sharing(server, trail)
    yield from _login(server, below(trail, "oauth"))


def eager_faults(raw: Mapping[str, object], trail: str) -> Iterator[Fault]:
    """What contradicts that clients do not share an instance, in an entry as it was written."""
    if raw.get("start") == StartMode.EAGER:
        message = "clients do not share this server, so it is started when the first needs it: remove this key"
        yield Fault(path=below(trail, "start"), message=message)


def missing_faults(server: Server, trail: str) -> Iterator[Fault]:
    """Keys that a server's transport requires and its entry lacks."""
    if server.type is _T.STDIO and not server.command:
        hint = "a stdio server needs a command to start; for a remote server write a url"
        yield Fault(path=below(trail, "command"), message=hint)
    if server.type is not _T.STDIO and not server.url:
        schemes = " or ".join(f"{scheme}://" for scheme in SCHEMES[server.type])
        yield Fault(
            path=below(trail, "url"), message=f"a server of type {server.type} needs a url, {schemes}..."
        )


def name_faults(names: Collection[str], trail: str) -> Iterator[Fault]:
    """Names that servers may not have, and of which nothing could be kept."""
    for name in names:
        if not SERVER_NAME.fullmatch(name):
            rule = "a server's name is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"
            yield Fault(path=below(trail, name), message=f"{rule}: rename it")


def _meaningless(server: Server, trail: str) -> Iterator[Fault]:
    for key in _MEANINGLESS[server.type]:
        if getattr(server, key):
            message = f"a server of type {server.type} has no '{camel(key)}': remove it, or change 'type'"
            yield Fault(path=below(trail, camel(key)), message=message)


def _url(server: Server, here: str) -> Iterator[Fault]:
    """The url may hold a password: no fault repeats more of it than the scheme."""
    if server.type is _T.STDIO or not server.url:
        return
    if server.type is _T.UNIX and server.url.startswith("/"):
        return
    try:
        parts = urlsplit(server.url)
        valid = parts.port is None or parts.port > 0
    except ValueError:
        parts, valid = SplitResult("", "", "", "", ""), False
    if not valid or re.search(r"\s", server.url):
        yield Fault(path=here, message="this is not a valid url")
    elif parts.scheme not in SCHEMES[server.type]:
        yield Fault(path=here, message=_wrong_scheme(server.type, parts.scheme))
    elif server.type is _T.UNIX and (parts.netloc or not parts.path.startswith("/")):
        yield Fault(path=here, message="write the absolute path of the socket: unix:///run/x.sock")
    elif server.type is not _T.UNIX and not parts.hostname:
        yield Fault(path=here, message=f"the host is missing: {parts.scheme}://HOST/...")


def _client_program(server: Server) -> str:
    """The key by which a client's directory decides which program is run; empty if none does."""
    command = server.command or ""
    by_cwd = server.shared_by is Share.WORKSPACE if server.cwd is None else WORKSPACE in server.cwd
    if WORKSPACE in command or (by_cwd and "/" in command and not command.startswith(("/", "~"))):
        return "command"
    return "env" if WORKSPACE in server.env.get("PATH", "") else ""


def _wrong_scheme(kind: TransportType, scheme: str) -> str:
    known = " or ".join(f"{scheme}://" for scheme in SCHEMES[kind])
    fitting = [other for other, schemes in SCHEMES.items() if scheme in schemes]
    hint = f", or set type to {fitting[0]}" if fitting else ""
    return f"the url of a server of type {kind} begins with {known}{hint}"


def _paths(server: Server, trail: str) -> Iterator[Fault]:
    for key, path in (("command", server.command), ("cwd", server.cwd)):
        if path and WORKSPACE in path and not path.startswith(WORKSPACE):
            message = "${workspace} is the absolute path of a directory: begin with it"
            yield Fault(path=below(trail, key), message=message)


def _sharing(server: Server, trail: str) -> Iterator[Fault]:
    if (key := _client_program(server)) and not server.workspace_programs:
        message = (
            "this lets a client have any program run, by the directory that it names: write a path of your own,"
            ' or "workspacePrograms": true if all who may connect may do that'
        )
        yield Fault(path=below(trail, key), message=message)
    if server.share is Share.ALL and server.uses_workspace:
        message = (
            "${workspace} is another directory for each client, so they cannot share an instance: remove this"
            ' key, or write "workspace" or "session"'
        )
        yield Fault(path=below(trail, "share"), message=message)
    if server.shared_by is Share.ALL and server.limits.instances != ServerLimits().instances:
        message = 'all clients share one instance: remove this key, or write "share": "workspace" or "session"'
        yield Fault(path=below(below(trail, "limits"), "instances"), message=message)


def _login(server: Server, here: str) -> Iterator[Fault]:
    if not isinstance(server.oauth, OAuth):
        return
    if server.type not in LOGIN_TYPES:
        yield Fault(path=here, message=f"a server of type {server.type} has no login: remove it")
    elif server.login is None:
        message = "the header Authorization counts more than a login: remove one of the two"
        yield Fault(path=here, message=message)
    yield from oauth_faults(server.oauth, here, MAX_PORT)


def _environment(server: Server, trail: str) -> Iterator[Fault]:
    for name in server.env:
        if not _VARIABLE.fullmatch(name):
            message = "this cannot be the name of an environment variable"
            yield Fault(path=below(below(trail, "env"), name), message=message)
    for name, value in server.headers.items():
        here = below(below(trail, "headers"), name)
        if not _HEADER.fullmatch(name):
            yield Fault(path=here, message="this cannot be the name of a header")
        # A line break would let the value write headers of its own.
        if re.search(r"[\r\n]", value):
            yield Fault(path=here, message="the value of a header is one line")


def _tuning(server: Server, trail: str) -> Iterator[Fault]:
    if server.restart.cap < server.restart.base:
        here = below(below(trail, "restart"), "cap")
        yield Fault(path=here, message=f"must not be less than base ({server.restart.base:g} s)")
    if server.timeouts.call_max < server.timeouts.call:
        here = below(below(trail, "timeouts"), "callMax")
        yield Fault(path=here, message=f"must not be less than call ({server.timeouts.call:g} s)")
    yield from _limits(server, below(trail, "limits"))


def _limits(server: Server, trail: str) -> Iterator[Fault]:
    limits = server.limits
    if limits.output_bytes is not None and limits.output_bytes > limits.message_bytes:
        here = below(trail, "outputBytes")
        yield Fault(path=here, message=f"must not be more than messageBytes ({limits.message_bytes})")
    if limits.memory_bytes is not None and server.type is not _T.STDIO:
        message = f"mcpd does not run a server of type {server.type}, and cannot see its memory: remove it"
        yield Fault(path=below(trail, "memoryBytes"), message=message)
