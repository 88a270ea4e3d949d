"""Reports of operators' commands as typed values: made once in the daemon, shown by all who show them.

They are the JSON of the control socket (docs/terminal.md), hence their keys. Plain dictionaries: reading one
costs the command line no import, and `cli.control` says which member an answer of another version lacks.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class CallInFlight(TypedDict):
    """A call that has no answer yet, or another request that goes to a server."""

    id: int
    """Names it until it ends; never given to another call of this daemon."""
    session: int | None
    """The number of its client's connection; None: an operator's (`mcpd call`)."""
    key: str | None
    """The key of its session; None if that has none."""
    client: str
    """The name and version of its client; empty if it gave none."""
    token: str
    """The name of the token that its client has shown; empty if none, or one without a name."""
    server: str
    """The server that it is for, by its name in the configuration; empty as long as that is not known."""
    instance: str
    """The instance of it, by its own name; empty where clients share one."""
    method: str
    """The method of MCP: `tools/call`, or that of another request that is passed on."""
    tool: str
    """The server's own name of the tool; what the client calls as long as that is not known."""
    since: float
    """When it began, in seconds since the epoch."""
    ageSeconds: float
    """For how many seconds it has been waited for."""
    waitsFor: str
    """What it waits for (`calls.WaitsFor`)."""
    sent: bool
    """Whether its server may have seen it."""


class EndedCall(TypedDict):
    """A call that was answered; members as of `CallInFlight`."""

    number: int
    at: float
    """When it ended, in seconds since the epoch."""
    session: int | None
    key: str | None
    client: str
    token: str
    server: str
    tool: str
    ms: float
    """How long it took."""
    outcome: str
    """`ok`, or the code of its error."""


class CallsReport(TypedDict):
    """What `mcpd calls` tells."""

    inFlight: list[CallInFlight]
    inFlightMore: int
    """How many more there are."""
    recent: list[EndedCall]
    next: int
    """The number of the last call that has ended."""
    source: str
    """The source that `next` counts in."""


class ConnectionReport(TypedDict):
    """An open connection of a client with its numbers, as `mcpd status` tells it."""

    number: int
    key: str | None
    """The key of its session; None if it has none."""
    client: str
    token: str | None
    protocol: str
    profile: str
    surface: str
    servers: list[str]
    """The servers that it has asked for; empty: all of its profile."""
    surfaceGrounds: str
    surfaceWhy: str
    """Why it has its surface, in words."""
    workspace: str | None
    instances: list[str]
    since: float
    calls: int
    inFlight: int
    loadedTools: int
    repairedCalls: int
    estimatedTokensNotSent: int | None
    """None: its client defers tools itself."""
    defersTools: bool


class LoadedToolReport(TypedDict):
    """A tool that a session has loaded, as `mcpd sessions KEY` tells it."""

    server: str
    name: str
    status: str
    """Whether it can still be used (`report_words.STATUSES`)."""
    reason: str
    source: str
    """Who has loaded it (`report_words.SOURCES`)."""
    loadedAt: float
    age: int
    schemaHash: str
    epoch: int
    renamedTo: NotRequired[str]
    changed: NotRequired[dict[str, Any]]
    """What has become of it, and when, as the history has it."""
