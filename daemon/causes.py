"""Causes of unhealthy servers: an enum with data, worded at the edge. Its values are a contract."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from enum import StrEnum

import attrs

Datum = str | int | float


class Cause(StrEnum):
    """The cause of an ended, prevented or degraded run; each member names its data."""

    # A program that cannot be started.
    COMMAND_NOT_FOUND = "command-not-found"
    """No such program. `command`; if a path, `file`: the searched place."""
    DIRECTORY_UNUSABLE = "directory-unusable"
    """`cwd` is missing or cannot be entered. `command`, `directory`, `error` (the system's words)."""
    NOT_EXECUTABLE = "not-executable"
    """No permission to execute. `command`."""
    NOT_A_PROGRAM = "not-a-program"
    """No program for this machine. `command`."""
    OUT_OF_FILES = "out-of-files"
    """The daemon has no descriptor left."""
    OUT_OF_PROCESSES = "out-of-processes"
    """The user or the unit may have no more processes."""
    OUT_OF_MEMORY = "out-of-memory"
    """The machine or the unit has no memory left."""
    CANNOT_START = "cannot-start"
    """Another failure that a retry does not cure. `command`, `error`."""
    SANDBOX_UNAVAILABLE = "sandbox-unavailable"
    """The sandbox cannot be made, so the server does not start. `error`; `problem`, its kind; `path` of
    the entry, if that is at fault."""
    SECRET_UNAVAILABLE = "secret-unavailable"  # noqa: S105 - a cause
    """A command or the keyring did not give a secret. `error`; `command`, or `secret`: the name there."""
    CONFIGURATION = "configuration"
    """A faulty entry. `error`, the first fault; `variable`, if one is unset; `env`, its equal name there."""

    # A program that ended or was killed.
    ENDED = "ended"
    """Exit status 0."""
    EXITED = "exited"
    """`status`, another exit status."""
    KILLED = "killed"
    """`signal`, its name."""
    MEMORY_CEILING = "memory-ceiling"
    """More memory than `limits.memoryBytes`. `used`, `limit`: bytes."""
    INTERNAL = "internal"
    """A bug in mcpd. `error`."""

    # A connection that was never established, or broke.
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    """No answer to `initialize`. `seconds`."""
    HANDSHAKE_REFUSED = "handshake-refused"
    """`initialize` was answered with an error. `error`."""
    NOT_MCP = "not-mcp"
    """A fatal breach of JSON-RPC or MCP. Over HTTP `place`, `form`: the unexpected media type."""
    NO_COMMON_VERSION = "no-common-version"
    """mcpd does not speak its revision of MCP. `version`."""
    CONNECTION_LOST = "connection-lost"
    """It hung up, or the connection broke."""
    NOT_ANSWERING = "not-answering"
    """Unanswered pings. `count`, `seconds`."""
    NOT_READING = "not-reading"
    """It does not read its input."""
    NOISE = "noise"
    """It floods stdout with other text than MCP. `first`, a line of it."""
    MESSAGE_TOO_LARGE = "message-too-large"
    """A message over `limits.messageBytes`."""

    # A silent but running server: degraded.
    UNANSWERED_PINGS = "unanswered-pings"
    """`count`, in a row; `seconds` of silence; `calls` in flight."""

    # A bad list of tools: the server is up, but degraded.
    LIST_REFUSED = "list-refused"
    """`tools/list` was answered with an error, or no list. `error`."""
    LIST_TIMEOUT = "list-timeout"
    """`tools/list` was not answered in time. `seconds`."""
    LIST_ENDLESS = "list-endless"
    """The pages of `tools/list` do not end."""
    NO_TOOLS = "no-tools"
    """It declares tools and lists none."""
    NOTHING_OFFERED = "nothing-offered"
    """It declares neither tools nor prompts nor resources."""
    TOOLS_UNUSABLE = "tools-unusable"
    """No tool is usable. `count`; `tool` and `error`, of the first."""

    # A server that mcpd connects to but does not run.
    BAD_URL = "bad-url"
    """Its `type` cannot use the `url`."""
    NAME_NOT_FOUND = "name-not-found"
    """The host's name is unknown. `place`: host and port, as below."""
    REFUSED = "refused"
    """Nothing listens there. `place`."""
    UNREACHABLE = "unreachable"
    """No route to the host. `place`."""
    CONNECT_TIMEOUT = "connect-timeout"
    """No connection in time. `place`."""
    CANNOT_CONNECT = "cannot-connect"
    """Another connect failure. `place`, `error`."""
    SOCKET_MISSING = "socket-missing"
    """No such unix socket. `place`: its path."""
    SOCKET_DENIED = "socket-denied"
    """No permission to connect to the unix socket. `place`: its path."""
    TLS_UNTRUSTED = "tls-untrusted"
    """No trusted authority signed the certificate. `place`."""
    TLS_EXPIRED = "tls-expired"
    """The certificate has expired. `place`."""
    TLS_NAME = "tls-name"
    """The certificate is for another name. `place`."""
    NOT_TLS = "not-tls"
    """The server does not speak TLS. `place`."""
    UNAUTHORIZED = "unauthorized"
    """HTTP 401: missing, wrong or expired credentials. `place`, `status`."""
    FORBIDDEN = "forbidden"
    """HTTP 403: insufficient credentials. `place`, `status`."""
    LOGIN_NEEDED = "login-needed"
    """A missing or ended OAuth login (`mcpd login`). `place`; `status`, if from the server."""
    SCOPE_MISSING = "scope-missing"
    """The login grants too little (`mcpd login`). `place`, `status`; `scope`, if stated."""
    LOGIN_REFUSED = "login-refused"
    """The login of mcpd itself (`auth`) fails. `place`, `error`; `status`, if from the server."""
    LOGIN_NOT_RENEWED = "login-not-renewed"
    """The authorization server is unreachable just now. `place`, `error`; `issuer`, if mcpd logs in itself."""
    REDIRECT = "redirect"
    """HTTP 3xx, not followed with credentials. `place`, `status`."""
    NOT_AN_ENDPOINT = "not-an-endpoint"
    """HTTP 404, 405, 406 or 410: no MCP at this path. `place`, `status`."""
    BUSY = "busy"
    """HTTP 429 or 503: overloaded. `place`, `status`; `seconds`, if stated."""
    GATEWAY = "gateway"
    """Another HTTP 5xx, of the server or a proxy. `place`, `status`."""
    HTTP_STATUS = "http-status"
    """Another HTTP status. `place`, `status`."""
    SESSION_OVER = "session-over"
    """The server forgot our session. `place`, `status`."""
    OTHER_ORIGIN = "other-origin"
    """Messages are to go to another origin. `origin`."""
    WEBSOCKET_REFUSED = "websocket-refused"
    """WebSocket close code 1008. `place`."""


PASSING = ("ended", "silent")
"""Problems of a sandbox that soon pass: its stub was killed, perhaps with the process that forks stubs, or says
nothing: that process may hang."""

CURED_BY_LOGIN = frozenset({Cause.LOGIN_NEEDED, Cause.SCOPE_MISSING})
"""Removed by `mcpd login`."""


@attrs.frozen
class Remedy:
    """A diagnosis: the event and its remedy, a sentence or two each."""

    happened: str
    helps: str
    waits: bool = False
    """Whether the server waits for an external thing: a login, a variable, a service, the network."""
    by_words: bool = False
    """Whether the server's last words decided, not the cause alone."""
    lacks: str = ""
    """The variable whose value mends it, or `keyring:NAME`; empty: something else does."""


@attrs.frozen
class Reason:
    """A server's reason for its state: a sentence for people, a cause with data for programs."""

    text: str = ""
    """May contain secrets until `redacted`."""
    cause: Cause | None = None
    """None if healthy, or if an operator or the daemon wanted the state."""
    data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    remedy: Remedy | None = None
    """From `supervision.lifecycle`."""

    @property
    def diagnosis(self) -> dict[str, str]:
        """The remedy as `happened` and `helps`; empty without one."""
        found = self.remedy
        return {"happened": found.happened, "helps": found.helps} if found else {}

    def redacted(self, redact: Callable[[str], str]) -> Reason:
        """The reason without secrets."""
        data = {key: redact(value) if isinstance(value, str) else value for key, value in self.data.items()}
        found = self.remedy
        if found is not None:
            found = attrs.evolve(
                found, happened=redact(found.happened), helps=redact(found.helps), lacks=redact(found.lacks)
            )
        return Reason(redact(self.text), self.cause, data, found)

    def after(self, words: str) -> Reason:
        """The reason with a prefix about the present action."""
        return attrs.evolve(self, text=f"{words}{self.text}")


HEALTHY = Reason()
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
    """The cause of an HTTP status (RFC 9110, section 15)."""
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    hundreds = status // 100
    return {3: Cause.REDIRECT, 5: Cause.GATEWAY}.get(hundreds, Cause.HTTP_STATUS)
