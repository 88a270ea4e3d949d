"""Reports of operators' commands as typed values: made once in the daemon, shown by all who show them.

They are the JSON of the control socket (docs/terminal.md), hence their keys. Plain dictionaries: structuring
them into classes would cost `mcpd status` a fifth more, as neither attrs nor msgspec is loaded there.
`cli.control` says which member the answer of another version lacks; members that nobody knows are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    changed: NotRequired[ChangeReport]
    """What has become of it, and when, as the history has it."""


class LatelyCalls(TypedDict):
    """The calls of the last minutes."""

    minutes: int
    calls: int
    errors: int
    p50Ms: float | None
    p95Ms: float | None


class PingsReport(TypedDict):
    """How a server's pings go."""

    unanswered: int
    lastMs: float | None
    lastHeardAt: float


class NoiseReport(TypedDict):
    """What a server prints that is not MCP."""

    count: int
    first: NotRequired[str]


class StateReport(TypedDict):
    """The state of a server or an instance, and its reason."""

    state: str
    reason: str


class StandingReport(StateReport):
    """The state of a server or an instance, and why it has that."""

    since: float
    attempt: int
    nextRetryInMs: int | None
    cause: str | None
    causeData: Mapping[str, Any]
    happened: str
    """What has happened, in a sentence; empty if the cause says nothing more."""
    helps: str
    waits: bool
    restarts: int


class RunningReport(TypedDict):
    """What runs of a server or an instance, and how its calls go."""

    stderr: list[str]
    pid: int | None
    pids: list[int]
    rssBytes: int | None
    calls: int
    errors: int
    inFlight: int
    p50Ms: float | None
    p95Ms: float | None
    recent: LatelyCalls
    pings: PingsReport | None
    protocol: str
    others: list[str]
    """What else it offers than tools, in words."""
    serverInfo: str
    noise: NoiseReport
    oneClientAtATime: bool


class ListReport(TypedDict):
    """A list of a server beside its tools, and what is wrong with it."""

    known: bool
    recalled: bool
    switchedOff: int
    quarantined: dict[str, str]
    hidden: dict[str, str]
    listingError: str


class BesideToolsReport(TypedDict):
    """How much of something else than tools is known."""

    prompts: int
    resources: int
    templates: int


class ServerReport(StandingReport, RunningReport):
    """A server, or an instance of one whose clients do not share one."""

    tools: int
    # Of an instance alone:
    name: NotRequired[str]
    workspace: NotRequired[str | None]
    session: NotRequired[int | None]
    differs: NotRequired[bool]
    """Whether it lists something else than its server does."""
    idleMs: NotRequired[int | None]
    # Of a server alone, whether it runs or not:
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
    prompts: NotRequired[int]
    resources: NotRequired[int]
    templates: NotRequired[int]
    unavailablePrompts: NotRequired[list[str]]
    unavailablePromptsLeft: NotRequired[int]
    unavailableResources: NotRequired[list[str]]
    unavailableResourcesLeft: NotRequired[int]
    unavailableTemplates: NotRequired[list[str]]
    unavailableTemplatesLeft: NotRequired[int]
    lists: NotRequired[dict[str, ListReport]]
    instances: NotRequired[list[ServerReport]]


class PersistenceReport(TypedDict):
    """Whether what changes is written down."""

    state: str
    reason: str
    cause: str | None
    since: float
    where: str
    waiting: int
    """Things that are not written yet."""


class DaemonReport(BesideToolsReport):
    """The daemon itself, and what its default profile shows."""

    version: str
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
    directory: str
    stateDirectory: str
    log: str
    unrecorded: str
    """Why what is started is not written down; empty if it is."""
    environment: dict[str, str]
    variables: list[str]


class OverReport(TypedDict):
    """What is over of a server: outages, and changes of its tools."""

    outages: int
    awaySeconds: float
    changed: list[str]
    came: list[str]
    went: list[str]


class LatelyReport(TypedDict):
    """What is over, by server, of the last so many seconds."""

    seconds: float
    servers: dict[str, OverReport]


class StatusReport(TypedDict):
    """What `mcpd status` tells."""

    daemon: DaemonReport
    servers: dict[str, ServerReport]
    sessions: list[ConnectionReport]
    repairs: Mapping[str, Mapping[str, int]]
    unresolved: list[str]
    switchedOff: list[str]
    metrics: dict[str, Any]
    """`counting.summary.summary`, and under `inAll` the same over all restarts."""
    connections: Mapping[str, Any]
    """By listening socket (`processes.peers.Connections`)."""
    lately: NotRequired[LatelyReport]
    summarizer: NotRequired[dict[str, Any]]


class FailureReport(TypedDict):
    """A call of a server that has failed."""

    at: float
    tool: str
    code: str
    text: str


class HappenedReport(TypedDict):
    """An event in the status of one server."""

    at: float
    kind: str
    instance: str
    run: int
    cause: str | None
    text: str


class OneStatusReport(TypedDict):
    """What `mcpd status SERVER` tells."""

    name: str
    server: ServerReport
    lastErrors: list[FailureReport]
    events: list[HappenedReport]
    calls: list[CallInFlight]
    moreCalls: int


class MemberReport(TypedDict):
    """A tool of a category."""

    server: str
    tool: str
    description: str
    enabled: bool
    listed: bool
    available: bool
    schemaHash: str | None


class CategoryReport(TypedDict):
    """A category with its tools."""

    description: str
    servers: list[str]
    tools: dict[str, MemberReport]


class SurfaceReport(TypedDict):
    """What a model is told when it connects."""

    name: str
    instructions: str
    tools: list[Any]
    """Definitions, as MCP has them."""


class ToolsReport(TypedDict):
    """What `mcpd tools` tells."""

    categories: dict[str, CategoryReport]
    surface: SurfaceReport


class OwnToolReport(TypedDict):
    """A tool of a server, by its own name."""

    description: str
    enabled: bool
    available: bool
    schemaHash: str


class ServerToolsReport(StateReport):
    """What `mcpd tools SERVER` tells."""

    server: str
    known: bool
    isCategory: bool
    """Whether a category has its name, and other tools."""
    tools: dict[str, OwnToolReport]
    quarantined: dict[str, str]


class ChangeReport(TypedDict):
    """What became of a tool."""

    at: float
    what: str


class ToolReport(StateReport):
    """What `mcpd tools SERVER/TOOL` tells."""

    server: str
    tool: str
    categories: list[str]
    enabled: bool
    available: bool
    schemaHash: str
    changed: ChangeReport | None
    definition: Any
    example: Any


class DefinitionReport(TypedDict):
    """A prompt, a resource or a template."""

    server: str
    name: NotRequired[str]
    """Of a prompt."""
    uri: NotRequired[str]
    """Of a resource or a template."""
    offeredAs: str
    enabled: bool
    available: bool
    definition: Any


class ListedReport(StateReport):
    """A server of whose prompts, or resources, something is to be known."""

    known: bool
    problem: str
    quarantined: dict[str, str]


class PromptsReport(TypedDict):
    """What `mcpd prompts` tells."""

    prompts: list[DefinitionReport]
    servers: dict[str, ListedReport]


class ResourcesReport(TypedDict):
    """What `mcpd resources` tells."""

    resources: list[DefinitionReport]
    templates: list[DefinitionReport]
    servers: dict[str, ListedReport]


class FoundReport(TypedDict):
    """A tool that `mcpd search` has found."""

    server: str
    name: str
    tool: NotRequired[str]
    category: str | None
    description: str
    score: float


class SearchReport(TypedDict):
    """What `mcpd search` tells."""

    tools: list[FoundReport]
    total: int
    suggestions: list[str]


class SessionReport(TypedDict):
    """A session: of all, with how many tools it has loaded; of one, with these."""

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
    """What `mcpd sessions` tells."""

    sessions: list[SessionReport]
    more: NotRequired[bool]
    incomplete: NotRequired[str]
    """Why some may be missing."""


class EventReport(TypedDict):
    """An event as `mcpd events` tells it (`history.encoding.as_json`)."""

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
    """What `mcpd events` tells."""

    events: list[EventReport]
    next: Any
    """Where to go on."""
    more: bool
