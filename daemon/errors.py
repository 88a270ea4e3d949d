"""Every error that mcpd raises or answers with.

There are two families. Errors of a *call* (`CallError` and below) are answered to a model: each has a code of
`design.md` §6, a text that says what to do next, and details for programs. Errors of a *run* of an upstream
(`RunError` and below) are read by the supervisor and shown in `mcpd status`: the cause decides whether to retry
soon, to retry slowly or to wait for the operator. Names say who is to blame, then whether the call was sent:
only a call that was certainly not sent may be called "safe to retry".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from daemon.causes import Cause, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.causes import Datum


class McpdError(Exception):
    """The root of all errors that mcpd raises on purpose."""


@attrs.frozen(kw_only=True)
class Fault:
    """One mistake in a configuration."""

    path: str
    """The place of the mistake, like a JSONPath: `$.mcpServers.git.command`."""
    message: str
    """A sentence that says what is wrong and what to write instead."""
    variable: str | None = None
    """The name of the environment variable that is not set, if that is the mistake."""
    line: int | None = None
    """The line that it stands in, from 1; None if it is in no line."""
    column: int | None = None
    """The character of that line where it begins, from 1."""

    def __str__(self) -> str:
        where = [] if self.line is None else [f"line {self.line}, column {self.column}"]
        # The root is the file, which stands above.
        return ": ".join([*where, *([self.path] if self.path != "$" else []), self.message])


class ConfigError(McpdError):
    """A configuration that cannot be used; carries every fault, not only the first."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        noun = "fault" if len(self.faults) == 1 else "faults"
        super().__init__(f"{source}: {len(self.faults)} {noun}\n{lines}")


class DaemonRunning(McpdError):
    """Another daemon already serves the socket."""


class CoreFailed(McpdError):
    """The daemon ends because of a fault of its own, which was logged."""


# --- errors of a call -------------------------------------------------------------------------------------


class CallError(McpdError):
    """The base of all errors that a tool call can be answered with instead of a result.

    `code` is the contract with models and tests; `details` are merged into `structuredContent.error`.
    """

    code: ClassVar[str] = "InternalError"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details


class InternalError(CallError):
    """A bug in mcpd, caught at a session's boundary so that it costs one call and not the connection."""


class UnknownCategory(CallError):
    """No category has the name that was given."""

    code = "UnknownCategory"


class UnknownTool(CallError):
    """The server or category that was named has no such tool."""

    code = "UnknownTool"


class UnknownServer(CallError):
    """No server has the name that was given."""

    code = "UnknownServer"


class ToolDisabled(CallError):
    """The operator has switched this tool off."""

    code = "ToolDisabled"


class PermissionDenied(CallError):
    """The client's user must agree to the call, and has not."""

    code = "PermissionDenied"


class UnknownPrompt(CallError):
    """No server of the profile has a prompt of the name that was given."""

    code = "UnknownPrompt"


class PromptDisabled(CallError):
    """The operator has switched this prompt off."""

    code = "PromptDisabled"


class UnknownResource(CallError):
    """No server of the profile has a resource with the URI that was given."""

    code = "UnknownResource"


class ResourceDisabled(CallError):
    """The operator has switched this resource off."""

    code = "ResourceDisabled"


class ToolNotLoaded(CallError):
    """The tool exists, but this session has not loaded it."""

    code = "ToolNotLoaded"


class ToolChanged(CallError):
    """The tool differs from what this client was shown. Told once, with the current definition."""

    code = "ToolChanged"

    def __init__(self, message: str, *, key: tuple[str, str], unloads: bool = False, **details: object) -> None:
        super().__init__(message, **details)
        self.key = key
        """The server and name of the tool."""
        self.unloads = unloads
        """Whether the tool has to be loaded again before it can be called."""


class InvalidArguments(CallError):
    """The arguments of a meta-tool, or the arguments that it wraps, do not match their schema."""

    code = "InvalidArguments"


class UpstreamUnavailable(CallError):
    """The server is down. The call was not sent: it is safe to retry."""

    code = "UpstreamUnavailable"


class NoWorkspace(CallError):
    """The server works in a directory of its client's, and the client has named none that can be used."""

    code = "NoWorkspace"


class NoSession(CallError):
    """The server has an instance for each session, and the client has no session."""

    code = "NoSession"


class UpstreamCallError(CallError):
    """The server answered with a JSON-RPC error of its own."""

    code = "UpstreamCallError"


class CallCancelled(CallError):
    """An operator has cancelled the call: if it was sent, whether it was executed is unknown."""

    code = "CallCancelled"


class UpstreamLost(CallError):
    """The connection was lost after the call was sent: whether it was executed is unknown."""

    code = "UpstreamLost"

    def at(self, server: str) -> UpstreamLost:
        """The same error, for a model: it names the server and says what to do next."""
        text = f"server {server}: {self.message}. Check what the call was to do before you call again."
        return UpstreamLost(text, **{**self.details, "server": server})


class UpstreamTimeout(CallError):
    """The server did not answer in time: whether the call was executed is unknown."""

    code = "UpstreamTimeout"


class SchemaFetchError(CallError):
    """The server is up but would not list its tools, and no earlier list is known."""

    code = "SchemaFetchError"


class RequestTooLarge(CallError):
    """A message exceeds the size limit of its direction."""

    code = "RequestTooLarge"


class InputRefused(CallError):
    """The server needs something of the client for this call, and the client has not given it."""

    code = "InputRefused"


class UnknownRequestState(CallError):
    """A client came back with a state that is not good for its request, for whatever reason."""

    code = "UnknownRequestState"


class Overloaded(CallError):
    """A limit on calls in flight was reached. The call was not sent: it is safe to retry."""

    code = "Overloaded"


# --- errors of a run of an upstream -----------------------------------------------------------------------


class RunError(McpdError):
    """A run of an upstream ended or never began. `reason` says why; its cause decides when to try again.

    A class below exists where its errors are caught separately; `default` is its cause if none is given.
    """

    default: ClassVar[Cause] = Cause.CONNECTION_LOST

    def __init__(self, message: str, cause: Cause | None = None, **data: Datum) -> None:
        """Describe what happened.

        Args:
            message: in words, for people.
            cause: for programs; by default that of the class.
            **data: the data that the cause says it carries.
        """
        super().__init__(message)
        self.reason = Reason(message, cause or self.default, data)


class ConnectionLost(RunError):
    """The link to the server ended: EOF, a reset, an exit, too many missed pings."""


class Busy(ConnectionLost):
    """The server is overloaded (HTTP 429, 503), and may have said for how long."""

    default = Cause.BUSY

    def __init__(self, message: str, cause: Cause | None = None, *, wait: float, **data: Datum) -> None:
        super().__init__(message, cause, seconds=wait, **data)
        self.wait = wait
        """Seconds to wait before the next attempt."""


class StartTimeout(RunError):
    """The server did not get through connect, handshake or first listing in time."""

    default = Cause.HANDSHAKE_TIMEOUT


class ProtocolFault(RunError):
    """The server broke JSON-RPC or MCP in a way that a connection does not survive."""

    default = Cause.NOT_MCP


class CannotStart(RunError):
    """Retrying soon is pointless: no such command, no permission, a configuration that cannot work."""

    default = Cause.CANNOT_START


class ListingFault(RunError):
    """The server is up but did not list its tools: it stays up, degraded, and is asked again."""

    default = Cause.LIST_REFUSED


class NeedsAuth(RunError):
    """The server requires credentials that it was not given (401, 403)."""

    default = Cause.UNAUTHORIZED


def leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one exception behind a nursery's exception group: an `McpdError` if it holds one, else its first.

    trio wraps every exception that leaves a nursery; the supervisor needs the plain error.
    """
    ours = group.subgroup(McpdError)
    found: BaseException = ours or group.subgroup(Exception) or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
