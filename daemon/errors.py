"""Every error that mcpd raises or answers with.

Two families. What a *call* can meet (`CallError` and below) is answered to a model: it has a code of
`design.md` §6, a text that says what to do next, and details for programs. What a *run* of an upstream can
meet (`RunError` and below) is read by the supervisor and shown in `mcpd status`: its cause decides whether
to retry soon, to retry slowly or to wait for the operator. Names say who is to blame, then whether the call
was sent: only what was certainly not sent may be called "safe to retry".
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
    """Where, as a JSONPath-like trail: `$.mcpServers.git.command`."""
    message: str
    """What is wrong, and what to write instead."""
    variable: str | None = None
    """The environment variable that is not set, where that is the fault."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(McpdError):
    """A configuration that cannot be used. Carries every fault, not only the first."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        noun = "fault" if len(self.faults) == 1 else "faults"
        super().__init__(f"{source}: {len(self.faults)} {noun}\n{lines}")


class DaemonRunning(McpdError):
    """Another daemon already serves the socket."""


# --- what a call can meet ---------------------------------------------------------------------------------


class CallError(McpdError):
    """Base of everything a tool call can be answered with instead of a result.

    `code` is the contract with models and tests; `details` are merged into `structuredContent.error`.
    """

    code: ClassVar[str] = "InternalError"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details


class InternalError(CallError):
    """Our own bug, caught at a session's boundary so that it costs one call and not the connection."""


class UnknownCategory(CallError):
    """No such category."""

    code = "UnknownCategory"


class UnknownTool(CallError):
    """No such tool in the place that was named."""

    code = "UnknownTool"


class UnknownServer(CallError):
    """No such server."""

    code = "UnknownServer"


class ToolDisabled(CallError):
    """The operator has switched this tool off."""

    code = "ToolDisabled"


class ToolNotLoaded(CallError):
    """The tool exists, and this session has not loaded it."""

    code = "ToolNotLoaded"


class ToolChanged(CallError):
    """The tool is not what this client was shown. Told once, with its definition as it is now."""

    code = "ToolChanged"

    def __init__(self, message: str, *, key: tuple[str, str], **details: object) -> None:
        super().__init__(message, **details)
        self.key = key
        """Which tool: server and name."""


class InvalidArguments(CallError):
    """The arguments of a meta-tool, or those that it wraps, do not fit a schema."""

    code = "InvalidArguments"


class UpstreamUnavailable(CallError):
    """The server is down. The call was not sent: it is safe to retry."""

    code = "UpstreamUnavailable"


class UpstreamCallError(CallError):
    """The server answered with a JSON-RPC error of its own."""

    code = "UpstreamCallError"


class UpstreamLost(CallError):
    """The connection went away after the call was sent: whether it ran is unknown."""

    code = "UpstreamLost"


class UpstreamTimeout(CallError):
    """The server did not answer in time: whether the call ran is unknown."""

    code = "UpstreamTimeout"


class SchemaFetchError(CallError):
    """The server is up but would not list its tools, and no earlier list is known."""

    code = "SchemaFetchError"


class RequestTooLarge(CallError):
    """A message over the limit of its direction."""

    code = "RequestTooLarge"


class Overloaded(CallError):
    """A bound on work in flight was reached. The call was not sent: it is safe to retry."""

    code = "Overloaded"


# --- what a run of an upstream can meet -------------------------------------------------------------------


class RunError(McpdError):
    """A run of an upstream ended or never began. `reason` says why; its cause decides when it is tried again.

    The classes below are for what is caught apart somewhere; a cause that is not given is the class's.
    """

    default: ClassVar[Cause] = Cause.CONNECTION_LOST

    def __init__(self, message: str, cause: Cause | None = None, **data: Datum) -> None:
        """Say what happened.

        Args:
            message: in words.
            cause: for programs.
            **data: what the cause says that it carries.
        """
        super().__init__(message)
        self.reason = Reason(message, cause or self.default, data)


class ConnectionLost(RunError):
    """The link to the server ended: EOF, a reset, an exit, too many missed pings."""


class Busy(ConnectionLost):
    """The server has no time for us (HTTP 429, 503), and may have said for how long."""

    default = Cause.BUSY

    def __init__(self, message: str, cause: Cause | None = None, *, wait: float, **data: Datum) -> None:
        super().__init__(message, cause, seconds=wait, **data)
        self.wait = wait
        """Seconds to leave it alone for."""


class StartTimeout(RunError):
    """The server did not get through connect, handshake or first listing in time."""

    default = Cause.HANDSHAKE_TIMEOUT


class ProtocolFault(RunError):
    """The server broke JSON-RPC or MCP in a way that a connection does not survive."""

    default = Cause.NOT_MCP


class CannotStart(RunError):
    """Trying again soon is pointless: no such command, no permission, a configuration that cannot work."""

    default = Cause.CANNOT_START


class ListingFault(RunError):
    """The server is up but did not list its tools: it goes on, degraded, and is asked again."""

    default = Cause.LIST_REFUSED


class NeedsAuth(RunError):
    """The server wants credentials that it was not given (401, 403)."""

    default = Cause.UNAUTHORIZED


def leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception that a nursery's group is about: ours if it holds one, else its first.

    trio wraps whatever leaves a nursery; the supervisor wants the plain error.
    """
    ours = group.subgroup(McpdError)
    found: BaseException = ours or group.subgroup(Exception) or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
