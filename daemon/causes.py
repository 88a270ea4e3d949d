"""Why a server is not healthy: an enum with data, created where something fails, worded where it is shown.

A `Cause` appears in `mcpd status --json`, in `meta.unavailableServers` and in the details of
`UpstreamUnavailable`, so its values are a contract. Restarts (`supervision.lifecycle`) and advice
(`supervision.status`) depend on it; sentences are for people, and no program parses them.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Datum = str | int | float
"""A value in a cause's data."""


class Cause(StrEnum):
    """What ended, prevented or degrades a run of a server. Each member names the data that it carries."""

    # A program that cannot be started.
    COMMAND_NOT_FOUND = "command-not-found"
    """There is no such program. `command`; if that is a path, `file`: where it was looked for."""
    DIRECTORY_UNUSABLE = "directory-unusable"
    """`cwd` is missing or cannot be entered. `command`, `directory`, `error` (the system's words)."""
    NOT_EXECUTABLE = "not-executable"
    """The file may not be executed. `command`."""
    NOT_A_PROGRAM = "not-a-program"
    """The file is not a program for this machine. `command`."""
    OUT_OF_FILES = "out-of-files"
    """The daemon has no descriptor left."""
    OUT_OF_PROCESSES = "out-of-processes"
    """The user or the unit may have no more processes."""
    OUT_OF_MEMORY = "out-of-memory"
    """The machine or the unit has no memory left."""
    CANNOT_START = "cannot-start"
    """Any other failure that retrying soon does not cure. `command`, `error`."""
    CONFIGURATION = "configuration"
    """Its entry in the configuration is faulty. `error`, the first fault; `variable`, if it is one not set."""

    # A program that ended or was killed.
    ENDED = "ended"
    """It ended by itself and reported success (exit status 0)."""
    EXITED = "exited"
    """It reported a failure. `status`, the exit status."""
    KILLED = "killed"
    """A signal ended it. `signal`, its name."""
    MEMORY_CEILING = "memory-ceiling"
    """It took more memory than `limits.memoryBytes`. `used`, `limit`: bytes."""
    INTERNAL = "internal"
    """A bug in mcpd. `error`."""

    # A connection that was never established, or broke.
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    """No answer to `initialize`. `seconds`."""
    HANDSHAKE_REFUSED = "handshake-refused"
    """`initialize` was answered with an error. `error`."""
    NOT_MCP = "not-mcp"
    """It broke JSON-RPC or MCP in a way that a connection does not survive. Over HTTP `place` and `form`, the
    media type of what came in place of an answer."""
    NO_COMMON_VERSION = "no-common-version"
    """It wants a revision of MCP that mcpd does not speak. `version`."""
    CONNECTION_LOST = "connection-lost"
    """It hung up, or the connection broke."""
    NOT_ANSWERING = "not-answering"
    """Pings were not answered. `count`, `seconds`."""
    NOT_READING = "not-reading"
    """It does not read what it is sent."""
    NOISE = "noise"
    """It floods its stdout with what is not MCP. `first`, a line of it."""
    MESSAGE_TOO_LARGE = "message-too-large"
    """A message was over `limits.messageBytes`."""

    # A server that is up, but says nothing just now: it is degraded.
    UNANSWERED_PINGS = "unanswered-pings"
    """It leaves pings unanswered. `count`, of them in a row; `seconds` since it was last heard; `calls` that it
    works on."""

    # A list of tools that is not as it should be: the server is up, and degraded.
    LIST_REFUSED = "list-refused"
    """`tools/list` was answered with an error, or with no list. `error`."""
    LIST_TIMEOUT = "list-timeout"
    """`tools/list` was not answered in time. `seconds`."""
    LIST_ENDLESS = "list-endless"
    """The pages of `tools/list` do not end."""
    NO_TOOLS = "no-tools"
    """It declares tools and lists none."""
    NOTHING_OFFERED = "nothing-offered"
    """It declares neither tools nor prompts nor resources."""
    TOOLS_UNUSABLE = "tools-unusable"
    """None of its tools can be used. `count`; `tool` and `error`, of the first."""

    # A server that mcpd connects to but does not run.
    BAD_URL = "bad-url"
    """The `url` is not one that its `type` can use."""
    NAME_NOT_FOUND = "name-not-found"
    """The host's name cannot be looked up. `place`: host and port, as for all that follow."""
    REFUSED = "refused"
    """Nothing listens there. `place`."""
    UNREACHABLE = "unreachable"
    """The network has no route to the host. `place`."""
    CONNECT_TIMEOUT = "connect-timeout"
    """No connection in time. `place`."""
    CANNOT_CONNECT = "cannot-connect"
    """Connecting failed for another reason. `place`, `error`."""
    SOCKET_MISSING = "socket-missing"
    """There is no such unix socket. `place`: its path."""
    SOCKET_DENIED = "socket-denied"
    """The daemon may not connect to the unix socket. `place`: its path."""
    TLS_UNTRUSTED = "tls-untrusted"
    """The server's certificate is not signed by a trusted authority. `place`."""
    TLS_EXPIRED = "tls-expired"
    """The server's certificate has expired. `place`."""
    TLS_NAME = "tls-name"
    """The server's certificate is for another name. `place`."""
    NOT_TLS = "not-tls"
    """The server does not speak TLS. `place`."""
    UNAUTHORIZED = "unauthorized"
    """HTTP 401: credentials are missing, wrong or expired. `place`, `status`."""
    FORBIDDEN = "forbidden"
    """HTTP 403: the credentials do not suffice. `place`, `status`."""
    LOGIN_NEEDED = "login-needed"
    """It wants an OAuth login (`mcpd login`): there is none, or it is over. `place`; `status`, if it said so
    itself."""
    SCOPE_MISSING = "scope-missing"
    """The login does not grant enough (`mcpd login`). `place`, `status`; `scope`, if it said what it wants."""
    LOGIN_NOT_RENEWED = "login-not-renewed"
    """Its authorization server, which renews the login, cannot be reached just now. `place`, `error`."""
    REDIRECT = "redirect"
    """HTTP 3xx, which is not followed with credentials. `place`, `status`."""
    NOT_AN_ENDPOINT = "not-an-endpoint"
    """HTTP 404, 405, 406 or 410: this path does not serve MCP. `place`, `status`."""
    BUSY = "busy"
    """HTTP 429 or 503: the server is overloaded. `place`, `status`; `seconds`, if it says how long."""
    GATEWAY = "gateway"
    """Another HTTP 5xx: the server, or a proxy in front of it, is failing. `place`, `status`."""
    HTTP_STATUS = "http-status"
    """Any other HTTP status. `place`, `status`."""
    SESSION_OVER = "session-over"
    """The server no longer knows our session. `place`, `status`."""
    OTHER_ORIGIN = "other-origin"
    """The server wants its messages sent to another origin. `origin`."""
    WEBSOCKET_REFUSED = "websocket-refused"
    """WebSocket close code 1008: the server does not want us. `place`."""


CURED_BY_LOGIN = frozenset({Cause.LOGIN_NEEDED, Cause.SCOPE_MISSING})
"""The causes that `mcpd login` removes."""


@attrs.frozen
class Remedy:
    """What happened to a server and what to do about it, a sentence or two each."""

    happened: str
    """What happened."""
    helps: str
    """What to do about it."""
    waits: bool = False
    """Whether the server waits for what its entry cannot bring: a login, a variable, a service, the network."""
    by_words: bool = False
    """Whether the server's own last words have told it, and not the cause alone."""


@attrs.frozen
class Reason:
    """Why a server is in its state: a sentence for people, a cause and its data for programs."""

    text: str = ""
    """The reason in words; may contain secrets until it is `redacted`."""
    cause: Cause | None = None
    """The cause; None if nothing is wrong, or an operator or the daemon itself wanted this state."""
    data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    """The data that the `Cause` says it carries."""
    remedy: Remedy | None = None
    """The diagnosis (`supervision.status`); None if there is none, or nobody has made it yet."""

    @property
    def diagnosis(self) -> dict[str, str]:
        """The remedy as members for programs: `happened` and `helps`; neither if there is none."""
        found = self.remedy
        return {"happened": found.happened, "helps": found.helps} if found else {}

    def redacted(self, redact: Callable[[str], str]) -> Reason:
        """The same reason without secrets."""
        data = {key: redact(value) if isinstance(value, str) else value for key, value in self.data.items()}
        found = self.remedy
        if found is not None:
            found = attrs.evolve(found, happened=redact(found.happened), helps=redact(found.helps))
        return Reason(redact(self.text), self.cause, data, found)

    def after(self, words: str) -> Reason:
        """The same reason, its text prefixed with words about what is being done."""
        return attrs.evolve(self, text=f"{words}{self.text}")


HEALTHY = Reason()
"""The reason of a server with which nothing is wrong."""

_OF_ERRNO = {
    errno.ECONNREFUSED: Cause.REFUSED,
    errno.ENETUNREACH: Cause.UNREACHABLE,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.EHOSTDOWN: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.CONNECT_TIMEOUT,
}

_OF_STATUS = {
    401: Cause.UNAUTHORIZED,
    403: Cause.FORBIDDEN,
    404: Cause.NOT_AN_ENDPOINT,
    405: Cause.NOT_AN_ENDPOINT,
    406: Cause.NOT_AN_ENDPOINT,
    410: Cause.NOT_AN_ENDPOINT,
    413: Cause.MESSAGE_TOO_LARGE,
    429: Cause.BUSY,
    503: Cause.BUSY,
}


def of_errno(number: int | None) -> Cause:
    """The cause of a failed connect(2)."""
    return _OF_ERRNO.get(number or 0, Cause.CANNOT_CONNECT)


def of_status(status: int) -> Cause:
    """The cause of an HTTP status that answers a request of MCP's (RFC 9110, section 15)."""
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    hundreds = status // 100
    return {3: Cause.REDIRECT, 5: Cause.GATEWAY}.get(hundreds, Cause.HTTP_STATUS)
