"""All errors that mcpd raises or answers with.

`CallError`s answer a model, with a code, a next step and details for programs. `RunError`s go to the supervisor
and into `mcpd status`; their cause decides about retries. Names and texts tell whether a call was sent: only a
call that was certainly not sent is "safe to retry".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from daemon.causes import Cause, Datum, Reason


class McpdError(Exception):
    """The root of all deliberate errors."""


@attrs.frozen(kw_only=True)
class Fault:
    """A mistake in a configuration."""

    path: str
    message: str
    variable: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = [] if self.line is None else [f"line {self.line}, column {self.column}"]
        # The root is the file, named above.
        return ": ".join([*where, *([self.path] if self.path != "$" else []), self.message])


class ConfigError(McpdError):
    """An unusable configuration, with all its faults."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        noun = "fault" if len(self.faults) == 1 else "faults"
        super().__init__(f"{source}: {len(self.faults)} {noun}\n{lines}")


class DaemonRunning(McpdError):
    """Another daemon serves the socket."""


class CoreFailed(McpdError):
    """The daemon ends because of an internal error, which was logged."""


# --- errors of a call -------------------------------------------------------------------------------------


class CallError(McpdError):
    """The base of errors that answer a tool call; `details` are merged into `structuredContent.error`."""

    code: ClassVar[str] = "InternalError"

    def __init_subclass__(cls) -> None:
        # Clients decide by codes (docs/errors.md): a class keeps its name.
        cls.code = cls.__name__

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details


class InternalError(CallError):
    """A bug in mcpd."""


class UnknownCategory(CallError):
    """No category has the given name."""


class UnknownTool(CallError):
    """The given server or category has no such tool."""


class UnknownServer(CallError):
    """No server has the given name."""


class ToolDisabled(CallError):
    """The operator disabled the tool."""


class PermissionDenied(CallError):
    """The user did not agree to the call."""


class ToolHeld(CallError):
    """The tool, prompt, template or skill waits for approval. Nothing was sent."""

    def __init__(self, message: str, *, held: Any, **details: object) -> None:
        super().__init__(message, **details)
        self.held = held
        """The `catalog.trust.HeldDefinition`."""


class AuditUnavailable(CallError):
    """mcpd cannot write the audit, whose `fail` is `closed`."""

    def __init__(self, because: str) -> None:
        super().__init__(
            f"mcpd cannot write its audit ({because}), and its configuration refuses calls without one"
            ' ("audit": {"fail": "closed"}). Nothing was sent. Tell the user: `mcpd status` says more.'
        )


class ScriptFailed(CallError):
    """A script ended with an error, or at a limit; `error.printed` has its output."""


class ScriptsUnavailable(CallError):
    """Scripts cannot run on this machine."""


class CannotApprove(CallError):
    """The lock cannot be read or written, or the approvals in the store are unknown."""


class UnknownPrompt(CallError):
    """No server of the profile has the prompt."""


class PromptDisabled(CallError):
    """The operator disabled the prompt."""


class UnknownResource(CallError):
    """No server of the profile has the resource."""


class ResultExpired(UnknownResource):
    """The large result is no longer kept, or belongs to another session."""


class ResourceDisabled(CallError):
    """The operator disabled the resource."""


class ToolNotLoaded(CallError):
    """The session has not loaded the tool."""


class ToolChanged(CallError):
    """The tool changed since the client saw it; reported once, with the current definition."""

    def __init__(self, message: str, *, key: tuple[str, str], unloads: bool = False, **details: object) -> None:
        super().__init__(message, **details)
        self.key = key
        """The tool's server and name."""
        self.unloads = unloads
        """Whether the tool must be loaded again."""


class InvalidArguments(CallError):
    """The arguments of a meta-tool or of the tool that it calls do not match their schema."""


class UpstreamUnavailable(CallError):
    """The server is down. The call was not sent: it is safe to retry."""


class ScriptToRun(CallError):
    """The tool is a script, which only a client's session can run."""


class NoWorkspace(CallError):
    """The server needs a directory of the client, which has named no usable one."""


class NoSession(CallError):
    """The server has an instance for each session, but the client has no session."""


class UpstreamCallError(CallError):
    """The server answered with a JSON-RPC error."""


class CallCancelled(CallError):
    """An operator cancelled the call, which may have run if it was sent."""


class UpstreamLost(CallError):
    """The connection was lost after the call was sent: the call may have run."""

    def at(self, server: str) -> UpstreamLost:
        """The error for a model, with the server and the next step."""
        text = f"server {server}: {self.message}. Check the call's effects before you call again."
        return UpstreamLost(text, **{**self.details, "server": server})


class UpstreamTimeout(CallError):
    """The server did not answer in time: the call may have run."""


class SchemaFetchError(CallError):
    """The server is up but never listed its tools."""


class RequestTooLarge(CallError):
    """A message exceeds its size limit."""


class InputRefused(CallError):
    """The client did not give the input that the server needs."""


class UnknownRequestState(CallError):
    """A client returned a state that is invalid for its request."""


class Overloaded(CallError):
    """A limit on calls in flight is reached. The call was not sent: it is safe to retry."""


# --- errors of a run of an upstream -----------------------------------------------------------------------


class RunError(McpdError):
    """A run of a server ended or never began; the cause in `reason`, else `default`, decides about retries."""

    default: ClassVar[Cause] = Cause.CONNECTION_LOST

    def __init__(self, message: str, cause: Cause | None = None, **data: Datum) -> None:
        """Take the text for people, the cause (None: the class's) and the cause's data."""
        super().__init__(message)
        self.reason = Reason(message, cause or self.default, data)


class ConnectionLost(RunError):
    """The link to the server ended: EOF, a reset, an exit, missed pings."""


class Busy(ConnectionLost):
    """The server is overloaded (HTTP 429, 503)."""

    default = Cause.BUSY

    def __init__(self, message: str, cause: Cause | None = None, *, wait: float, **data: Datum) -> None:
        super().__init__(message, cause, seconds=wait, **data)
        self.wait = wait
        """Seconds until the next attempt."""


class StartTimeout(RunError):
    """Connect, handshake or first listing took too long."""

    default = Cause.HANDSHAKE_TIMEOUT


class ProtocolFault(RunError):
    """A fatal breach of JSON-RPC or MCP by the server."""

    default = Cause.NOT_MCP


class CannotStart(RunError):
    """An early retry is pointless: no such command, no permission, an impossible configuration."""

    default = Cause.CANNOT_START


class ListingFault(RunError):
    """The server is up but failed to list its tools; it stays up, degraded, and is asked again."""

    default = Cause.LIST_REFUSED
    refusal = b""
    """The server's error object; empty if it sent none."""


class NeedsAuth(RunError):
    """The server requires other credentials (401, 403)."""

    default = Cause.UNAUTHORIZED


def leaf(group: BaseException) -> BaseException:
    """The exception inside a nursery's group, preferably an `McpdError`; another exception unchanged."""
    if not isinstance(group, BaseExceptionGroup):
        return group
    ours = group.subgroup(McpdError)
    found: BaseException = ours or group.subgroup(Exception) or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
