"""The configuration as frozen values. The file's keys are these names in camelCase.

Every field has one line of documentation, which is also its description in the JSON Schema. Secrets may be in
`env`, `headers` and `url`, so these fields are left out of every repr.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

import attrs

from daemon.config import state_url
from daemon.config.listen import DEFAULT_PROFILE, MAX_PORT, Listen, MetricsAddress
from daemon.config.tuning import (
    AnswerTokens,
    Count,
    Duration,
    Limits,
    ProfileLimits,
    Restart,
    Rule,
    Seconds,
    ServerLimits,
    Timeouts,
    like,
)
from daemon.errors import Fault
from daemon.kit.later import later


def _wrong_web_url(url: str) -> str:
    """The url may hold a password: no text repeats it."""
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return ""
    except ValueError:
        pass
    return "write the url of an OpenAI-compatible endpoint, up to its version: https://HOST/v1"


_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, section 3.3."""

MAX_RULES = 256
"""Rules of one profile: each new list of tools is judged by all of them, in a microsecond each."""

Pattern = Annotated[str, Rule(later("daemon.config.names", "pattern_problem"))]
Scope = Annotated[str, like(_SCOPE, 'a scope has no blanks and no quotes: write ["one", "two"] for several')]
Port = Annotated[int, Rule(lambda port: "" if 0 < port <= MAX_PORT else f"a port is 1 to {MAX_PORT}")]
DirectoryGlob = Annotated[
    str, like(re.compile(r"(?:/|~/|\*).*", re.DOTALL), "this fits no directory: begin it with /, ~/ or *")
]
HttpsUrl = Annotated[
    str, like(re.compile("https://.*", re.DOTALL), "write an https:// URL: others are not accepted")
]
WebUrl = Annotated[str, Rule(_wrong_web_url)]
StateUrlText = Annotated[str, Rule(state_url.problem)]
VariableName = Annotated[
    str, like(re.compile(r"[^=\s]+"), "this cannot be the name of an environment variable")
]
KeyName = Annotated[
    str,
    like(
        re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
        "write the NAME of the environment variable that holds the key, not the key",
    ),
]
HeaderName = Annotated[
    str, like(re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "this cannot be the name of a header")
]
HeaderValue = Annotated[str, like(re.compile(r"[^\r\n]*"), "the value of a header is one line")]
"""A line break would let a value write headers of its own."""


def from_the_key(**arguments: Any) -> Any:
    """A field that no file can set; the reader fills it in."""
    return attrs.field(metadata={"in_file": False}, **arguments)


@attrs.frozen(kw_only=True)
class Override:
    """What the operator says about one tool."""

    enabled: bool = True
    """false: the tool is neither described nor callable."""
    description: str | None = None
    """Shown instead of the server's own description."""


@attrs.frozen(kw_only=True)
class ToolSelection:
    """Which tools belong to a category. Names may be bare, `server/tool` or `mcp__server__tool`."""

    include_names: tuple[str, ...] = ()
    """Tools by name, in the order in which they are shown."""
    include_patterns: tuple[Pattern, ...] = ()
    """Tools by glob (`git_*`) or by regex between slashes (`/^git_(log|show)$/`)."""
    exclude_patterns: tuple[Pattern, ...] = ()
    """Tools to leave out again, written like `includePatterns`."""
    overrides: Mapping[str, Override] = attrs.field(factory=dict)
    """Tool name to what is changed about it."""


@attrs.frozen(kw_only=True)
class Category:
    """A named set of tools, shown to models as one line until they ask for more."""

    name: str = from_the_key()
    """Its key in `categories`."""
    description: str = ""
    """What its tools are good for, in words for a model that chooses."""
    server: str | None = None
    """The server that bare tool names belong to; when absent, every name is `server/tool`."""
    skill: str | None = None
    """A text handed out with the tools: how to use them well."""
    tools: ToolSelection = attrs.field(factory=ToolSelection)
    """Which tools; when absent, all of the server's."""


class Permission(StrEnum):
    """What becomes of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class Annotations:
    """What a server says that a tool does (MCP, tool annotations)."""

    read_only: bool | None = None
    """true: tools that change nothing, as their servers say; false: all others."""
    destructive: bool | None = None
    """true: tools that may destroy something, which are all but those that say otherwise or only read."""
    idempotent: bool | None = None
    """true: tools of which a second call with the same arguments changes nothing more, as their servers say."""
    open_world: bool | None = None
    """true: tools that reach beyond their servers, which are all but those that say otherwise."""

    @property
    def wanted(self) -> dict[str, bool]:
        """What is said, by field; nothing of what is left open."""
        said = attrs.asdict(self)
        return {name: value for name, value in said.items() if value is not None}


SomeAnnotations = Annotated[
    Annotations,
    Rule(
        lambda said: (
            ""
            if said.wanted
            else 'this fits every tool: write "destructive": true or the like, or remove the key'
        )
    ),
]


@attrs.frozen(kw_only=True)
class PermissionRule:
    """Which tools a rule is about, and what becomes of calls to them; with both keys, both must fit."""

    match: Pattern | None = None
    """Tools by glob (`filesystem/write_*`) or by regex between slashes, as in `includePatterns`."""
    annotations: SomeAnnotations | None = None
    """Tools by what their servers say that they do."""
    then: Permission
    """allow: called; ask: called if the client's user agrees; deny: neither shown nor called."""


def _wrong_rule(rule: PermissionRule) -> str:
    if rule.match is not None or rule.annotations is not None:
        return ""
    return 'this rule does not say for which tools it is: write "match": "*" if it is for all'


PermissionRules = Annotated[
    tuple[Annotated[PermissionRule, Rule(_wrong_rule)], ...],
    Rule(
        lambda rules: (
            "" if len(rules) <= MAX_RULES else f"{len(rules)} rules are too many; there may be {MAX_RULES}"
        )
    ),
]


WORKSPACE = "\0workspace\0"
"""What ${workspace} stands for until an instance is made for one: no value can hold a NUL otherwise."""

WRITTEN = "${workspace}"
"""How that is written."""

IDLE_SECONDS = 600.0
"""Seconds without use after which an instance is ended that not all clients share, if `idle` is absent: longer
than a pause in a conversation, and no browser is kept for a night."""


class Share(StrEnum):
    """Who shares an instance of a server."""

    ALL = "all"
    WORKSPACE = "workspace"
    SESSION = "session"


@attrs.frozen(kw_only=True)
class Instance:
    """Which instance of a server a configuration is for, where clients do not share one."""

    label: str
    """What logs, metrics and `mcpd status` call it: `playwright#12`, `filesystem@~/src/app`."""
    workspace: str | None = None
    """The directory that it works in; None if its clients have named none."""
    capabilities: Mapping[str, object] | None = attrs.field(default=None, repr=False)
    """What its client can do (MCP, `ClientCapabilities`), as its server is told; None: what mcpd passes on."""


def as_written(text: str) -> str:
    """A text of a configuration as it may be shown: with ${workspace} as its author wrote it."""
    return text.replace(WORKSPACE, WRITTEN)


class LoginPlace(StrEnum):
    """Where logins are kept."""

    FILES = "files"
    KEYRING = "secret-service"


@attrs.frozen(kw_only=True)
class OAuth:
    """How mcpd logs in to a server that wants OAuth; each key is for what the server does not say itself."""

    client_id: str | None = None
    """The client that was registered by hand; null: mcpd registers itself (RFC 7591)."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """Its secret, if it has one; write it as ${VAR}."""
    scopes: tuple[Scope, ...] = ()
    """What to ask for, instead of what the server and its metadata name."""
    redirect_port: Port | None = None
    """The port of 127.0.0.1 that the browser comes back to, where one had to be registered; null: any."""
    metadata_url: HttpsUrl | None = None
    """The https:// URL of a client id metadata document, for authorization servers that take one."""
    device: bool = False
    """true: a code that is typed on any device (RFC 8628), where the authorization server offers it."""


DEFAULT_SURFACE = "auto"
"""What a profile has that names no surface: the one that fits the client (`surfaces.table`)."""


class TransportType(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"
    WS = "ws"
    UNIX = "unix"


LOGIN_TYPES = frozenset({TransportType.HTTP, TransportType.SSE, TransportType.WS})
"""How servers are reached whose requests can carry a login."""


PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
"""The port that a url's scheme implies."""


class StartMode(StrEnum):
    """When a server is started."""

    EAGER = "eager"
    LAZY = "lazy"


class EraWish(StrEnum):
    """Which of the two eras of MCP is spoken with a server."""

    AUTO = "auto"
    HANDSHAKE = "handshake"
    MODERN = "modern"


class SchemaForm(StrEnum):
    """How the schemas of tools' arguments are shown."""

    ORIGINAL = "original"
    OPENAI = "openai"


@attrs.frozen(kw_only=True)
class Server:
    """One MCP server that mcpd runs or connects to."""

    name: str = from_the_key()
    """Its key in `mcpServers`."""
    title: str = ""
    """What people call it, in any characters; a key that cannot be a name becomes its title."""
    description: str = ""
    """What it is good for, in words for a model that chooses."""
    type: TransportType = TransportType.STDIO
    """How it is reached; when absent: stdio for a command, else what the url says (ws, unix, http)."""
    command: str | None = attrs.field(default=None, repr=False)
    """The program to start (stdio)."""
    args: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Arguments of the command (stdio)."""
    env: Mapping[VariableName, str] = attrs.field(factory=dict, repr=False)
    """Environment variables for it, besides a small safe set (stdio); write secrets as ${VAR}."""
    env_file: str | None = attrs.field(default=None, repr=False)
    """A file with more of `env`, which counts more: NAME=VALUE lines; from the configuration's directory on."""
    cwd: str | None = attrs.field(default=None, repr=False)
    """The directory to start it in (stdio), from the configuration's on; when absent, the home directory."""
    url: str | None = attrs.field(default=None, repr=False)
    """Where it listens: http(s)://, ws(s)://, unix:///path or an absolute path."""
    headers: Mapping[HeaderName, HeaderValue] = attrs.field(factory=dict, repr=False)
    """HTTP headers sent to it (http, sse, ws); write secrets as ${VAR}."""
    oauth: OAuth | bool = True
    """How to log in to it where it wants OAuth (http, sse, ws; `mcpd login`); false: never. A configured header
    `Authorization` counts more."""
    enabled: bool = True
    """false: never started, its tools are not offered, its ${...} are not looked up."""
    start: StartMode = StartMode.EAGER
    """eager: started with the daemon; lazy: with the first call to one of its tools. Where clients do not share
    an instance, each starts with its first client, and lazy keeps mcpd from listing the tools once before."""
    share: Share | None = None
    """all: one instance for everybody; workspace: one for each directory that clients work in; session: one
    for each session; when absent: workspace if ${workspace} stands in command, args, env or cwd, else all."""
    workspaces: tuple[DirectoryGlob, ...] = ()
    """Globs of directories, * standing for any characters: only clients that work in one of them see and start
    it; when absent, all clients do."""
    workspace_programs: bool = False
    """Whether clients may have programs of their directories run: needed for ${workspace} in the command."""
    idle: Duration | None = None
    """How long an instance may be without use before it is ended: 30s, 10m, 2h, 1d, off, or seconds; when
    absent: 10m where clients do not share one, else off."""
    era: EraWish = EraWish.AUTO
    """auto: the newest that it speaks, and a second connection for clients of the revisions before 2026-07-28
    if it speaks those, too; handshake or modern: one connection, with one of them."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """How long to wait for it."""
    limits: ServerLimits = attrs.field(factory=ServerLimits)
    """Bounds on what the server may use: memory, calls, message sizes."""
    restart: Restart = attrs.field(factory=Restart)
    """When and how soon it is started again."""
    substituted: frozenset[str] = from_the_key(default=frozenset(), repr=False)
    """What its ${...} references stood for."""
    credentials: frozenset[str] = from_the_key(default=frozenset(), repr=False)
    """Which credentials its ${...} references stood for or fell back to, so that logs can leave them out."""
    faults: tuple[Fault, ...] = from_the_key(default=())
    """What is wrong with its entry: with any, it is not started, and `failed` until the entry is mended."""
    instance: Instance | None = attrs.field(default=None, metadata={"in_file": False})
    """Which of its instances this is the configuration of; None where all clients share it."""

    @property
    def awaits(self) -> tuple[str, ...]:
        """The variables that its entry refers to and that are set nowhere."""
        return tuple(fault.variable for fault in self.faults if fault.variable is not None)

    @property
    def label(self) -> str:
        """What logs, metrics and `mcpd status` call the instance that this is the configuration of."""
        return self.name if self.instance is None else self.instance.label

    @property
    def login(self) -> OAuth | None:
        """How mcpd logs in to it; None: not at all, as it is no HTTP server, has a token, or may not."""
        has_token = any(name.lower() == "authorization" for name in self.headers)
        if self.type not in LOGIN_TYPES or self.oauth is False or has_token:
            return None
        return self.oauth if isinstance(self.oauth, OAuth) else OAuth()

    @property
    def shared_by(self) -> Share:
        """Who shares an instance of it."""
        if self.share is not None:
            return self.share
        return Share.WORKSPACE if self.uses_workspace else Share.ALL

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without use after which an instance of it is ended; None: it is kept."""
        if self.idle is None:
            return None if self.shared_by is Share.ALL else IDLE_SECONDS
        return self.idle if math.isfinite(self.idle) else None

    @property
    def uses_workspace(self) -> bool:
        """Whether ${workspace} stands in its command, arguments, environment or directory."""
        texts = (self.command or "", self.cwd or "", *self.args, *self.env.values())
        return any(WORKSPACE in text for text in texts)

    @property
    def written(self) -> Server:
        """The same as it may be shown: with ${workspace} as its author wrote it."""
        return attrs.evolve(
            self,
            command=self.command and as_written(self.command),
            args=tuple(map(as_written, self.args)),
            env={name: as_written(value) for name, value in self.env.items()},
            cwd=self.cwd and as_written(self.cwd),
        )


USUAL = "usual"
"""Stands for the tools that are called most, where tools to preload are named."""


@attrs.frozen(kw_only=True)
class Profile:
    """What a client that names this profile gets to see."""

    name: str = from_the_key()
    """Its key in `profiles`."""
    description: str | None = None
    """Whom the profile is for."""
    surface: str = DEFAULT_SURFACE
    """Which set of meta-tools is shown; auto: the one that fits the client, by what it says it is."""
    lazy: bool = True
    """false: this profile shows every tool, as the `full` surface does."""
    categories: tuple[str, ...] | None = None
    """The categories it may use; null is all of them."""
    core_tools: tuple[str, ...] | None = None
    """Tools listed from the start on the `search` surface, as `server/tool` or bare; null is those that were
    called most."""
    preload: tuple[str, ...] | str = ()
    """Tools loaded from the start on the `load` surface, as `server/tool` or bare; usual: those called most."""
    instructions: str | None = None
    """The instructions given to the client when it connects, instead of mcpd's own."""
    answer_tokens: AnswerTokens = 8000
    """Most tokens of one answer of a meta-tool, 4 bytes each; above that it names tools with a line each."""
    auto_load: bool = False
    """true: on the `load` surface, a call to a tool that is not loaded loads it."""
    prompt: str | None = None
    """A text for the model about this way of working, added to the instructions."""
    excluded_tools: tuple[str, ...] = ()
    """Tools that this profile does not show; a bare name means every server's tool of that name."""
    included_optional_tools: tuple[str, ...] = ()
    """Tools that this profile shows although a category switches them off or none of its categories has
    them."""
    tool_description_overrides: Mapping[str, str] = attrs.field(factory=dict)
    """Tool name to the description shown in this profile."""
    prompts: bool = True
    """false: this profile shows no prompts."""
    resources: bool = True
    """false: this profile shows no resources and no templates of them."""
    read_resource: bool = False
    """true: the meta-tools include one that reads a resource, for clients that cannot read any themselves."""
    permissions: PermissionRules = ()
    """Which calls are allowed, asked about or denied; the first rule that fits a tool wins, and without one its
    calls are allowed."""
    schemas: SchemaForm = SchemaForm.ORIGINAL
    """original: input schemas as servers write them; openai: without what OpenAI's tool format refuses."""
    read_only_call: bool = True
    """false: `category`, `browse` and `search` have no second call tool, for tools that only read."""
    limits: ProfileLimits = attrs.field(factory=ProfileLimits)
    """What its clients may take."""
    deferred_loading: bool | None = None
    """true: as surface `search`; false: as surface `full`; null: what `surface` says."""

    @property
    def preloaded(self) -> tuple[str, ...]:
        """What is preloaded, as a list: names of tools, and `USUAL`."""
        return (self.preload,) if isinstance(self.preload, str) else self.preload


@attrs.frozen(kw_only=True)
class Search:
    """How tools are found besides by their words."""

    semantic: bool = False
    """true: by meaning, too; needs the extra `mcpd-supervisor[semantic]`."""
    model: str | None = None
    """A folder with a model2vec model; null is the one that comes with the extra."""


@attrs.frozen(kw_only=True)
class Summaries:
    """An OpenAI-compatible endpoint that shortens tool descriptions."""

    base_url: WebUrl = attrs.field(repr=False)
    """Where it is, up to and including the version: https://host/v1."""
    model: str
    """Which of its models to ask."""
    api_key_env: KeyName | None = None
    """The NAME of the variable that holds the key, in the environment or in the file `env` beside the
    configuration; null for an endpoint without one."""
    kept_key: str | None = from_the_key(default=None, repr=False)
    """The key, if it stands in that file; the environment counts more."""
    timeout: Seconds = 60
    """Seconds that the model has for one answer."""
    batch: Count = 20
    """Tools that one request describes."""
    per_minute: Count = 20
    """Questions a minute at most."""


@attrs.frozen(kw_only=True)
class State:
    """Where the catalog, epochs and sessions are kept."""

    url: StateUrlText | None = attrs.field(default=None, repr=False)
    """sqlite:///absolute/path or postgresql://...; null is SQLite in the state directory."""
    session_idle: Seconds = 30 * 24 * 3600
    """Seconds after which a session with a key that nobody uses is forgotten."""
    logins: LoginPlace = LoginPlace.FILES
    """Where logins at servers are kept. files: in the state directory, for the daemon's user only;
    secret-service: in the desktop's keyring, which needs the extra `mcpd-supervisor[secret-service]`."""


@attrs.frozen(kw_only=True)
class Metrics:
    """Where Prometheus metrics are served, and to whom."""

    enabled: bool = False
    """true: `mcpd metrics` prints them, and `listen` serves them."""
    listen: MetricsAddress | None = None
    """HOST:PORT where it is served over TCP, too; a loopback address: it has no password."""


@attrs.frozen(kw_only=True)
class Config:
    """mcpd's configuration: which servers it runs, and what clients see of them."""

    mcp_servers: Mapping[str, Server] = attrs.field(factory=dict)
    """Servers by name; the object that other MCP clients call `mcpServers` can be pasted here."""
    categories: Mapping[str, Category] = attrs.field(factory=dict)
    """Categories by name; when absent, each server is a category."""
    lazy: bool = True
    """The master switch; false: every profile is the `full` surface."""
    profiles: Mapping[str, Profile] = attrs.field(
        factory=lambda: {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE)}
    )
    """Profiles by name; `default` is for clients that ask for none and exists even when not written."""
    search: Search = attrs.field(factory=Search)
    """How the tool search works."""
    summaries: Summaries | None = None
    """Who shortens tool descriptions; null: nobody, they are cut."""
    state: State = attrs.field(factory=State)
    """Where the catalog, sessions and operators' decisions are stored."""
    limits: Limits = attrs.field(factory=Limits)
    """What all clients and servers together may take."""
    listen: Listen = attrs.field(factory=Listen)
    """Where the daemon is reached."""
    metrics: Metrics = attrs.field(factory=Metrics)
    """What is counted for Prometheus, and where."""
    watch: bool = False
    """true: the file is read again whenever it changes."""
    autostart: bool = True
    """false: `mcpd connect` starts no daemon where none runs."""
    idle: Duration | None = None
    """How long a daemon that `mcpd start` or `mcpd connect` has started may be without clients and calls before
    it ends: 30m, 2h, 1d, off, or seconds; when absent: off."""
