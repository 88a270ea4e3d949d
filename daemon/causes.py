"""Causes of unhealthy servers: codes with data, worded where they are shown. The codes are a contract."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from enum import StrEnum

import attrs
import msgspec

Datum = str | int | float


class Cause(StrEnum):
    """Why a run ended, could not begin or is degraded; each member lists its data."""

    # A program that cannot be started.
    COMMAND_NOT_FOUND = "command-not-found"
    """The program does not exist. `command`; for a path also `file`: the place searched."""
    DIRECTORY_UNUSABLE = "directory-unusable"
    """`cwd` is missing or cannot be entered. `command`, `directory`, `error` (the system's words)."""
    NOT_EXECUTABLE = "not-executable"
    """mcpd may not execute the file. `command`."""
    NOT_A_PROGRAM = "not-a-program"
    """The file is not a program for this machine. `command`."""
    OUT_OF_FILES = "out-of-files"
    """The daemon has no descriptor left."""
    OUT_OF_PROCESSES = "out-of-processes"
    """The user or the unit has reached its limit of processes."""
    OUT_OF_MEMORY = "out-of-memory"
    """The machine or the unit has no memory left."""
    CANNOT_START = "cannot-start"
    """Another failure that a retry does not cure. `command`, `error`."""
    SANDBOX_UNAVAILABLE = "sandbox-unavailable"
    """mcpd cannot make the sandbox. `error`; `problem`, its kind; `path` of the entry, if at fault."""
    SECRET_UNAVAILABLE = "secret-unavailable"  # noqa: S105 - a cause
    """A command or the keyring gave no secret. `error`; `command`, or `secret`: its name in the keyring."""
    CONFIGURATION = "configuration"
    """The entry is faulty. `error`, the first fault; `variable`, if one is unset; `env`, its name in `env`."""

    # A program that ended or was killed.
    ENDED = "ended"
    """The program ended with exit status 0."""
    EXITED = "exited"
    """The program ended with another exit status, `status`."""
    KILLED = "killed"
    """A signal killed the program. `signal`: its name."""
    MEMORY_CEILING = "memory-ceiling"
    """The server used more memory than `limits.memoryBytes`. `used`, `limit`: bytes."""
    INTERNAL = "internal"
    """A bug in mcpd. `error`."""

    # A connection that was never established, or broke.
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    """The server did not answer `initialize`. `seconds`."""
    HANDSHAKE_REFUSED = "handshake-refused"
    """The server answered `initialize` with an error. `error`."""
    NOT_MCP = "not-mcp"
    """The server broke JSON-RPC or MCP fatally. Over HTTP `place`, `form`: the unexpected media type."""
    NO_COMMON_VERSION = "no-common-version"
    """mcpd does not speak the server's revision of MCP. `version`."""
    CONNECTION_LOST = "connection-lost"
    """The server disconnected, or the connection broke."""
    NOT_ANSWERING = "not-answering"
    """The server did not answer pings. `count`, `seconds`."""
    NOT_READING = "not-reading"
    """The server does not read its input."""
    NOISE = "noise"
    """The server floods stdout with text that is not MCP. `first`: one line of it."""
    MESSAGE_TOO_LARGE = "message-too-large"
    """A message exceeded `limits.messageBytes`."""

    # A silent but running server: degraded.
    UNANSWERED_PINGS = "unanswered-pings"
    """The server leaves pings unanswered. `count`, in a row; `seconds` of silence; `calls` in flight."""

    # A bad list of tools: the server is up, but degraded.
    LIST_REFUSED = "list-refused"
    """The server answered `tools/list` with an error or without a list. `error`."""
    LIST_TIMEOUT = "list-timeout"
    """The server did not answer `tools/list` in time. `seconds`."""
    LIST_ENDLESS = "list-endless"
    """The pages of `tools/list` do not end."""
    NO_TOOLS = "no-tools"
    """The server declares tools but lists none."""
    NOTHING_OFFERED = "nothing-offered"
    """The server declares no tools, prompts or resources."""
    TOOLS_UNUSABLE = "tools-unusable"
    """No tool is usable. `count`; `tool` and `error`, of the first."""

    # A server that mcpd connects to but does not run.
    BAD_URL = "bad-url"
    """The `url` does not suit the entry's `type`."""
    NAME_NOT_FOUND = "name-not-found"
    """The host name is unknown. `place`: host and port, as below."""
    REFUSED = "refused"
    """Nothing listens at the address. `place`."""
    UNREACHABLE = "unreachable"
    """There is no route to the host. `place`."""
    CONNECT_TIMEOUT = "connect-timeout"
    """The connection took too long. `place`."""
    CANNOT_CONNECT = "cannot-connect"
    """Connecting failed for another reason. `place`, `error`."""
    SOCKET_MISSING = "socket-missing"
    """The unix socket does not exist. `place`: its path."""
    SOCKET_DENIED = "socket-denied"
    """mcpd may not connect to the unix socket. `place`: its path."""
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
    """The OAuth login is missing or has ended (`mcpd login`). `place`; `status`, if from the server."""
    SCOPE_MISSING = "scope-missing"
    """The login does not grant enough (`mcpd login`). `place`, `status`; `scope`, if stated."""
    LOGIN_REFUSED = "login-refused"
    """mcpd's own login (`auth`) fails. `place`, `error`; `status`, if from the server."""
    LOGIN_NOT_RENEWED = "login-not-renewed"
    """The authorization server is unreachable now. `place`, `error`; `issuer`, if mcpd logs in by itself."""
    REDIRECT = "redirect"
    """HTTP 3xx, which mcpd does not follow with credentials. `place`, `status`."""
    NOT_AN_ENDPOINT = "not-an-endpoint"
    """HTTP 404, 405, 406 or 410: no MCP at this path. `place`, `status`."""
    BUSY = "busy"
    """HTTP 429 or 503: overloaded. `place`, `status`; `seconds`, if stated."""
    GATEWAY = "gateway"
    """Another HTTP 5xx, of the server or a proxy. `place`, `status`."""
    HTTP_STATUS = "http-status"
    """Another HTTP status. `place`, `status`."""
    SESSION_OVER = "session-over"
    """The server no longer knows the session. `place`, `status`."""
    OTHER_ORIGIN = "other-origin"
    """The server wants messages sent to another origin. `origin`."""
    WEBSOCKET_REFUSED = "websocket-refused"
    """WebSocket close code 1008. `place`."""


PASSING = ("ended", "silent")
"""Problems of a sandbox that soon pass: its stub was killed, perhaps with the process that forks stubs, or is
silent because that process may hang."""

CURED_BY_LOGIN = frozenset({Cause.LOGIN_NEEDED, Cause.SCOPE_MISSING})
"""Causes that `mcpd login` cures."""


class Remedy(msgspec.Struct, frozen=True):
    """A diagnosis: what happened, and the remedy, a sentence or two each."""

    happened: str
    helps: str
    waits: bool = False
    """Whether the server waits for an external thing: a login, a variable, a service, the network."""
    by_words: bool = False
    """Whether the diagnosis comes from the server's last words, not from the cause alone."""
    lacks: str = ""
    """The variable whose value cures the failure, or `keyring:NAME`; empty if something else does."""


@attrs.frozen
class Reason:
    """Why a server is in its state: a sentence for people, and a cause with data for programs."""

    text: str = ""
    """The sentence, which may contain secrets until `redacted`."""
    cause: Cause | None = None
    """The cause; None if healthy, or if an operator or the daemon wanted the state."""
    data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    remedy: Remedy | None = None
    """The diagnosis, added by `supervision.lifecycle`."""

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
            found = msgspec.structs.replace(
                found, happened=redact(found.happened), helps=redact(found.helps), lacks=redact(found.lacks)
            )
        return Reason(redact(self.text), self.cause, data, found)

    def after(self, words: str) -> Reason:
        """The reason, after words about the current action."""
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
