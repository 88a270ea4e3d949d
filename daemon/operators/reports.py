"""Typed reports of operators' commands, with the keys of the control socket's JSON.

Plain dictionaries: structuring them into classes would cost `mcpd status` a fifth more. `cli.control` names the
member that another version's answer lacks; unknown members are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class CallReport(TypedDict):
    """The caller and the subject of a call, or of another request to a server."""

    session: int | None
    """The number of its client's connection; None for an operator's (`mcpd call`)."""
    key: str | None
    """The key of its session; None if the session has none."""
    client: str
    """The client's name and version; may be empty."""
    token: str
    """The name of the client's token; empty without a token or a name."""
    server: str
    """The server's name in the configuration; empty until it is known."""
    tool: str
    """The server's own name of the tool; the client's name until the server is known."""


class CallInFlight(CallReport):
    """A call that has no answer yet."""

    id: int  # never reused while the daemon runs
    instance: str
    """The instance's own name; empty for a shared server."""
    method: str
    """The MCP method: `tools/call`, or that of another forwarded request."""
    script: str
    """The script that makes the call, and the number of the script's own call; empty for a client's call."""
    since: float
    """Seconds since the epoch."""
    ageSeconds: float
    waitsFor: str
    """The name of a `call_commands.WaitsFor`."""
    sent: bool
    """Whether the server may have received the call."""


class EndedCall(CallReport):
    """An answered call."""

    number: int
    at: float
    """The time of the answer, in seconds since the epoch."""
    ms: float
    """The duration in milliseconds."""
    outcome: str
    """`ok`, or the code of its error."""
    rule: str
    """The rule that refused an operator's call, or empty."""
    text: str
    """The error's text, or empty."""


class CallsReport(TypedDict):
    """The answer of `mcpd calls`."""

    inFlight: list[CallInFlight]
    inFlightMore: int
    """The number of calls omitted from `inFlight`."""
    recent: list[EndedCall]
    next: int
    """The number of the last ended call."""
    source: str
    """The source whose numbers `next` belongs to."""


class ConnectionReport(TypedDict):
    """An open connection of a client, with its counts, in `mcpd status`."""

    number: int
    key: str | None
    """The key of its session; None if the session has none."""
    client: str
    token: str | None
    protocol: str
    profile: str
    surface: str
    servers: list[str]
    """The servers that the client asked for; empty for all servers of its profile."""
    surfaceGrounds: str
    surfaceWhy: str
    """The reason for its surface, in words."""
    workspace: str | None
    instances: list[str]
    since: float
    calls: int
    inFlight: int
    loadedTools: int
    repairedCalls: int
    estimatedTokensNotSent: int | None
    """None for a client that defers tools by itself."""
    defersTools: bool


class LoadedToolReport(TypedDict):
    """A tool that a session has loaded, in `mcpd sessions KEY`."""

    server: str
    name: str
    status: str
    """The validity: whether the tool can still be used (`report_words.STATUSES`)."""
    reason: str
    source: str
    """The cause of its loading (`report_words.SOURCES`)."""
    loadedAt: float
    age: int
    schemaHash: str
    epoch: int
    renamedTo: NotRequired[str]
    changed: NotRequired[ChangeReport]
    """The tool's change since it was loaded, from the history."""


class CountsReport(TypedDict):
    """Counts of calls and errors, and the calls' latencies."""

    calls: int
    errors: int
    p50Ms: float | None
    p95Ms: float | None


class LatelyCalls(CountsReport):
    """The calls of the last minutes."""

    minutes: int


class PingsReport(TypedDict):
    """The state of a server's pings."""

    unanswered: int
    lastMs: float | None
    lastHeardAt: float


class NoiseReport(TypedDict):
    """Lines on a server's stdout that are not MCP."""

    count: int
    first: NotRequired[str]


class StateReport(TypedDict):
    """The state of a server or an instance, and its reason."""

    state: str
    reason: str


class StandingReport(StateReport):
    """The state of a server or an instance, with its cause and remedy."""

    since: float
    attempt: int
    nextRetryInMs: int | None
    cause: str | None
    causeData: Mapping[str, Any]
    happened: str
    """The event as a sentence; empty if the reason already says everything."""
    helps: str
    waits: bool
    restarts: int


class RunningReport(CountsReport):
    """The running part of a server or an instance, and its calls."""

    stderr: list[str]
    pid: int | None
    pids: list[int]
    rssBytes: int | None
    inFlight: int
    recent: LatelyCalls
    pings: PingsReport | None
    protocol: str
    others: list[str]
    """The definitions other than tools that the server offers, in words."""
    serverInfo: str
    noise: NoiseReport
    oneClientAtATime: bool


class ListReport(TypedDict):
    """A list of prompts, resources or templates of a server, and its problems."""

    known: bool
    recalled: bool
    switchedOff: int
    quarantined: dict[str, str]
    hidden: dict[str, str]
    listingError: str


class HeldReport(TypedDict):
    """A definition that waits for approval."""

    because: str  # `catalog.trust.HeldBecause`
    change: Mapping[str, list[str]]  # `catalog.forms.Change`


class RefusedHostReport(TypedDict):
    """A host that a sandbox refused."""

    host: str
    port: int
    count: int
    reason: str  # `config.hosts.HostRefusal`
    allow: str
    """The command that allows the host; empty if no command can."""


class SandboxReport(TypedDict):
    """A server's sandbox."""

    mode: str
    refused: list[RefusedHostReport]
    refusedMore: int
    """The number of refused requests to hosts omitted from `refused`."""
    show: str
    """The command that shows the whole list."""


class BesideToolsReport(TypedDict):
    """The numbers of known prompts, resources, templates and skills."""

    prompts: int
    resources: int
    templates: int
    skills: int


class ServerReport(StandingReport, RunningReport):
    """A server, or one of its instances."""

    tools: int
    # Of an instance alone:
    name: NotRequired[str]
    workspace: NotRequired[str | None]
    session: NotRequired[int | None]
    differs: NotRequired[bool]
    """Whether an instance's lists differ from the server's."""
    idleMs: NotRequired[int | None]
    # Of a server alone, whether it runs or not:
    learning: NotRequired[bool]
    """Whether the server runs unconfined and watched (`mcpd sandbox --learn`)."""
    title: NotRequired[str]
    type: NotRequired[str]
    share: NotRequired[str]
    epoch: NotRequired[int]
    quarantined: NotRequired[dict[str, str]]
    completed: NotRequired[list[str]]
    hidden: NotRequired[dict[str, str]]
    listingError: NotRequired[str]
    refreshedAt: NotRequired[float | None]
    recalled: NotRequired[bool]
    switchedOff: NotRequired[int]
    summary: NotRequired[str]
    # Counts of lists; each list has members like `unavailablePrompts` and `unavailablePromptsLeft`, too.
    prompts: NotRequired[int]
    resources: NotRequired[int]
    templates: NotRequired[int]
    skills: NotRequired[int]
    lists: NotRequired[dict[str, ListReport]]
    held: NotRequired[dict[str, HeldReport]]  # by operators' words (`catalog.kinds.switch_of`)
    sandbox: NotRequired[SandboxReport | None]
    instances: NotRequired[list[ServerReport]]


class PersistenceReport(TypedDict):
    """Whether changes reach the store."""

    state: str
    reason: str
    cause: str | None
    since: float
    where: str
    waiting: int
    """The number of changes not yet written."""


class DaemonReport(BesideToolsReport):
    """The daemon itself, and the view of its default profile."""

    version: str
    replaced: bool
    """Whether another version of mcpd has been installed since the daemon started."""
    pid: int
    startedAt: float
    uptimeSeconds: float
    socket: str
    controlSocket: str
    config: str
    configReadAt: float
    lazy: bool
    surfaces: dict[str, str]
    startsAtATime: int
    servers: int
    dormant: int
    off: int
    available: int
    tools: int
    schemaBytes: int
    offeredTools: int
    offeredBytes: int
    surfaceBytes: int
    estimatedTokensSaved: int
    persistence: PersistenceReport
    audit: str
    """Why audit records are missing; empty if all are there."""
    directory: str
    stateDirectory: str
    doubtedTokens: list[str]  # that wait for `mcpd token confirm`
    log: str
    unrecorded: str
    """Why started children are not recorded; empty if they are."""
    environment: dict[str, str]
    variables: list[str]


class OverReport(TypedDict):
    """A server's past outages, and the changes of its tools."""

    outages: int
    awaySeconds: float
    changed: list[str]
    came: list[str]
    went: list[str]
    held: list[str]  # definitions that wait for approval, if some were held meanwhile


class LatelyReport(TypedDict):
    """Outages and changes of the last `seconds`, by server."""

    seconds: float
    servers: dict[str, OverReport]


class StatusReport(TypedDict):
    """The answer of `mcpd status`."""

    daemon: DaemonReport
    servers: dict[str, ServerReport]
    sessions: list[ConnectionReport]
    repairs: Mapping[str, Mapping[str, int]]
    unresolved: list[str]
    switchedOff: list[str]
    metrics: dict[str, Any]
    """`counting.tally.summary` of this run; `inAll` has the same over all restarts."""
    connections: Mapping[str, Any]
    """By listening socket (`processes.peers.Connections`)."""
    lately: NotRequired[LatelyReport]
    summarizer: NotRequired[dict[str, Any]]


class FailureReport(TypedDict):
    """A failed call of a server."""

    at: float
    tool: str
    code: str
    text: str


class HappenedReport(TypedDict):
    """An event in the answer of `mcpd status SERVER`."""

    at: float
    kind: str
    instance: str
    run: int
    cause: str | None
    text: str


class LastHourReport(TypedDict):
    """A server's values for each of the last minutes, oldest first; None where nothing was measured."""

    calls: list[float | None]
    errors: list[float | None]
    latency: list[float | None]
    """Milliseconds, the 95th percentile."""
    memory: list[float | None]
    """Bytes."""


class OneStatusReport(TypedDict):
    """The answer of `mcpd status SERVER`."""

    name: str
    server: ServerReport
    lastHour: NotRequired[LastHourReport]
    lastErrors: list[FailureReport]
    events: list[HappenedReport]
    calls: list[CallInFlight]
    moreCalls: int


class UsableReport(TypedDict):
    """Whether a definition is switched on, and can be used now."""

    enabled: bool
    available: bool


class MemberReport(UsableReport):
    """A tool of a category."""

    server: str
    tool: str
    description: str
    listed: bool
    held: HeldReport | None
    schemaHash: str | None


class CategoryReport(TypedDict):
    """A category with its tools."""

    description: str
    servers: list[str]
    tools: dict[str, MemberReport]


class SurfaceReport(TypedDict):
    """The instructions and tools that a model gets when it connects."""

    name: str
    instructions: str
    tools: list[Any]
    """Definitions in MCP's form."""


class ToolsReport(TypedDict):
    """The answer of `mcpd tools`."""

    categories: dict[str, CategoryReport]
    surface: SurfaceReport


class OwnToolReport(UsableReport):
    """A tool of a server, by its own name."""

    description: str
    schemaHash: str


class ServerToolsReport(StateReport):
    """The answer of `mcpd tools SERVER`."""

    server: str
    known: bool
    isCategory: bool
    """Whether a category has the same name, but other tools."""
    tools: dict[str, OwnToolReport]
    held: dict[str, HeldReport]
    quarantined: dict[str, str]


class ChangeReport(TypedDict):
    """The last change of a tool."""

    at: float
    what: str


class ToolReport(StateReport, UsableReport):
    """The answer of `mcpd tools SERVER/TOOL`."""

    server: str
    tool: str
    categories: list[str]
    schemaHash: str
    changed: ChangeReport | None
    held: HeldReport | None
    approved: Mapping[str, Any] | None  # `by` and `at`; None where nothing is held, or the tool waits
    definition: Any
    observed: str | None  # the type of what it returns, in Python's words, as observed; None if unknown
    example: Any


class DefinitionReport(UsableReport):
    """A prompt, a resource or a template."""

    server: str
    name: NotRequired[str]
    """A prompt's name."""
    uri: NotRequired[str]
    """The URI of a resource, or the URI template."""
    offeredAs: str
    definition: Any


class ListedReport(StateReport):
    """The state of a server whose prompts or resources the operator asked for."""

    known: bool
    problem: str
    quarantined: dict[str, str]


class PromptsReport(TypedDict):
    """The answer of `mcpd prompts`."""

    prompts: list[DefinitionReport]
    servers: dict[str, ListedReport]


class ResourcesReport(TypedDict):
    """The answer of `mcpd resources`."""

    resources: list[DefinitionReport]
    templates: list[DefinitionReport]
    servers: dict[str, ListedReport]


class FoundReport(TypedDict):
    """A result of `mcpd search`."""

    server: str
    name: str
    tool: NotRequired[str]
    category: str | None
    description: str
    score: float


class SearchReport(TypedDict):
    """The answer of `mcpd search`."""

    tools: list[FoundReport]
    total: int
    suggestions: list[str]


class SessionReport(TypedDict):
    """A session; the list of all sessions has the number of its loaded tools, its own report the tools."""

    key: str | None
    number: int | None
    client: str
    profile: str | None
    surface: str | None
    surfaceWhy: str | None
    connections: int
    createdAt: float
    seenAt: float | None
    forgottenInSeconds: int | None
    loaded: Any
    """A number, or a list of `LoadedToolReport`."""
    invalid: NotRequired[int | None]


class SessionsReport(TypedDict):
    """The answer of `mcpd sessions`."""

    sessions: list[SessionReport]
    more: NotRequired[bool]
    incomplete: NotRequired[str]
    """Why sessions may be missing."""


class EventReport(TypedDict):
    """An event in `mcpd events` (`history.journal.as_json`)."""

    at: float
    kind: str
    server: str | None
    instance: str | None
    session: str | None
    run: int | None
    message: str
    isBad: bool
    text: str
    cause: str | None
    causeData: Mapping[str, Any]
    details: Mapping[str, Any]
    daemon: str
    number: int


class EventsReport(TypedDict):
    """The answer of `mcpd events`."""

    events: list[EventReport]
    next: Any
    """The cursor for the next request."""
    more: bool
