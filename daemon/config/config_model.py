"""The configuration, frozen, with snake_case keys; field docstrings are the JSON Schema's descriptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

import attrs

from daemon.config import state_url
from daemon.config.listen import DEFAULT_PROFILE, MAX_PORT, Listen, MetricsAddress, web_address
from daemon.config.lock_file import Lock
from daemon.config.login_keys import Auth, Scope
from daemon.config.sandbox_keys import SandboxMode, SandboxRules
from daemon.config.tuning import (
    AnswerTokens,
    AuditKeys,
    Count,
    Duration,
    Limits,
    ProfileLimits,
    Restart,
    Results,
    Rule,
    ScriptLimits,
    Seconds,
    ServerLimits,
    Telemetry,
    Timeouts,
    like,
)
from daemon.errors import Fault
from daemon.kit.later import later


def _wrong_web_url(url: str, what: str) -> str:
    # The URL is not quoted, as it may hold a password.
    return "" if web_address(url) else f"write the url of {what}"


MAX_RULES = 256
"""Rules of one profile. mcpd matches each listed tool with all of them, at 1 us each."""

Pattern = Annotated[str, Rule(later("daemon.config.names", "pattern_problem"))]
Port = Annotated[int, Rule(lambda port: "" if 0 < port <= MAX_PORT else f"a port is 1 to {MAX_PORT}")]
DirectoryGlob = Annotated[
    str, like(re.compile(r"(?:/|~/|\*).*", re.DOTALL), "this matches no directory: begin it with /, ~/ or *")
]
HttpsUrl = Annotated[
    str, like(re.compile("https://.*", re.DOTALL), "write an https:// URL: others are not accepted")
]
_ENDPOINT = "an OpenAI-compatible endpoint, up to its version: https://HOST/v1"
WebUrl = Annotated[str, Rule(lambda url: _wrong_web_url(url, _ENDPOINT))]
_REGISTRY = "an MCP registry, up to /v0.1: https://HOST"
RegistryUrl = Annotated[str, Rule(lambda url: _wrong_web_url(url, _REGISTRY))]
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
"""Refuses line breaks, with which a value could inject headers."""


def from_the_key(**arguments: Any) -> Any:
    """Declare a field that mcpd sets; no file may hold it."""
    return attrs.field(metadata={"in_file": False}, **arguments)


@attrs.frozen(kw_only=True)
class Override:
    """Changes to one tool."""

    enabled: bool = True
    """false: clients neither see nor call the tool."""
    description: str | None = None
    """Replaces the server's description."""


@attrs.frozen(kw_only=True)
class ToolSelection:
    """Tools of a category. Names are bare, `server/tool` or `mcp__server__tool`."""

    include_names: tuple[str, ...] = ()
    """Tools by name, in the order shown to clients."""
    include_patterns: tuple[Pattern, ...] = ()
    """Tools by glob (`git_*`) or by regex between slashes (`/^git_(log|show)$/`)."""
    exclude_patterns: tuple[Pattern, ...] = ()
    """Tools to leave out, written like `includePatterns`."""
    overrides: Mapping[str, Override] = attrs.field(factory=dict)
    """Changes to single tools, by tool name."""


@attrs.frozen(kw_only=True)
class Category:
    """A named set of tools. Models see one line for it until they ask for more."""

    name: str = from_the_key()
    """Its key in `categories`."""
    description: str = ""
    """Its purpose, for a model that chooses."""
    server: str | None = None
    """The server of bare tool names. Without it, every name is `server/tool`."""
    skill: str | None = None
    """Instructions sent with the tools."""
    tools: ToolSelection = attrs.field(factory=ToolSelection)
    """The tools. Without it, all tools of `server`."""


class Permission(StrEnum):
    """The decision on a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class Annotations:
    """The tool annotations of MCP, as the server declares them."""

    read_only: bool | None = None
    """Declared to change nothing."""
    destructive: bool | None = None
    """May destroy something, unless declared otherwise or read-only."""
    idempotent: bool | None = None
    """Declared to change nothing more when called again."""
    open_world: bool | None = None
    """May reach beyond its server, unless declared otherwise."""

    @property
    def wanted(self) -> dict[str, bool]:
        """The given annotations by field."""
        hints = attrs.asdict(self)
        return {name: value for name, value in hints.items() if value is not None}


_FITS_ALL = 'this matches every tool: write "destructive": true or the like, or remove the key'

SomeAnnotations = Annotated[Annotations, Rule(lambda said: "" if said.wanted else _FITS_ALL)]


@attrs.frozen(kw_only=True)
class PermissionRule:
    """A rule about calls to some tools. With both `match` and `annotations`, both must match."""

    match: Pattern | None = None
    """Tools, like `includePatterns`."""
    annotations: SomeAnnotations | None = None
    """Tools by the annotations that their servers declare."""
    then: Permission
    """allow: run the call. ask: ask the client's user first. deny: clients neither see nor call the tool."""


def _wrong_rule(rule: PermissionRule) -> str:
    if rule.match is not None or rule.annotations is not None:
        return ""
    return 'this rule names no tools: write "match": "*" for all'


def _too_many(rules: tuple[PermissionRule, ...]) -> str:
    return "" if len(rules) <= MAX_RULES else f"{len(rules)} rules are too many; there may be {MAX_RULES}"


PermissionRules = Annotated[tuple[Annotated[PermissionRule, Rule(_wrong_rule)], ...], Rule(_too_many)]


WORKSPACE = "\0workspace\0"
"""Marks ${workspace} until the instance is known; no other value can hold a NUL."""

WRITTEN = "${workspace}"

LATE = re.compile("\0((?:run|keyring):[^\0]*)\0")
"""Finds marks of ${run:...} and ${keyring:...}, which are resolved at each start of the server."""


class Share(StrEnum):
    """Which clients share an instance of a server."""

    ALL = "all"
    WORKSPACE = "workspace"
    SESSION = "session"


@attrs.frozen(kw_only=True)
class Instance:
    """Identifies the instance that a server's configuration is for."""

    label: str
    """The instance's name in logs, metrics and `mcpd status`: `playwright#12`, `filesystem@~/src/app`."""
    workspace: str | None = None
    capabilities: Mapping[str, object] | None = attrs.field(default=None, repr=False)
    """The client's capabilities, for the server's handshake; None means all supported ones."""
    session: str = ""
    """Identifies its session in all daemons' lives; empty if the instance is of a workspace."""


def as_written(text: str) -> str:
    """Replace marks by the references that the user has written."""
    return LATE.sub(r"${\1}", text.replace(WORKSPACE, WRITTEN))


class LoginPlace(StrEnum):
    """The place where logins are stored."""

    FILES = "files"
    KEYRING = "secret-service"


@attrs.frozen(kw_only=True)
class OAuth:
    """Login to a server that requires OAuth. Most servers supply these values themselves."""

    client_id: str | None = None
    """Id of a client registered by hand."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The client's secret, as ${VAR}."""
    scopes: tuple[Scope, ...] = ()
    """Scopes to request instead of the server's."""
    redirect_port: Port | None = None
    """Port on 127.0.0.1 for the browser's redirect, if registered."""
    metadata_url: HttpsUrl | None = None
    """https:// URL of a client id metadata document, if the authorization server accepts one."""
    device: bool = False
    """true: the user types a code on any device (RFC 8628)."""


DEFAULT_SURFACE = "auto"
"""mcpd picks the surface that fits the client (`surfaces.table`)."""


class TransportType(StrEnum):
    """The type of connection to a server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"
    WS = "ws"
    UNIX = "unix"
    SCRIPT = "script"


LOGIN_TYPES = frozenset({TransportType.HTTP, TransportType.SSE, TransportType.WS})
"""Transports whose requests can carry a login."""

NOT_WRITTEN = frozenset({TransportType.SCRIPT})
"""Types that no file may name: mcpd itself makes the server of scripts."""


PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
"""Default ports of URL schemes."""


class Trust(StrEnum):
    """Which definitions need no approval (docs/trust.md)."""

    ALL = "all"
    CHANGES = "changes"
    NONE = "none"


class StartMode(StrEnum):
    """When a server starts."""

    EAGER = "eager"
    LAZY = "lazy"


class EraWish(StrEnum):
    """The eras of MCP that mcpd speaks with a server."""

    AUTO = "auto"
    HANDSHAKE = "handshake"
    MODERN = "modern"


class SchemaForm(StrEnum):
    """The form of the input schemas of tools."""

    ORIGINAL = "original"
    OPENAI = "openai"


@attrs.frozen(kw_only=True)
class EntryOrigin:
    """The origin of an entry that `mcpd add` took from a registry or a bundle."""

    registry: str | None = None
    """URL of the registry, if any."""
    name: str
    """The server's name there: `io.github.owner/server`, or the bundle's own."""
    version: str
    """The version that was added."""
    hash: str | None = None
    """Hash of the package: `sha256:...` of a bundle or image, else as its registry gives it."""
    bundle: str | None = None
    """The directory of the unpacked bundle, which `mcpd remove` deletes."""


@attrs.frozen(kw_only=True)
class Server:
    """An MCP server that mcpd runs or connects to."""

    name: str = from_the_key()
    """Its key in `mcpServers`."""
    title: str = ""
    """Display name, any characters."""
    description: str = ""
    """Its purpose, for a model that chooses."""
    type: TransportType = TransportType.STDIO
    """The transport. When absent: stdio with a command, otherwise by the URL (ws, unix, http)."""
    command: str | None = attrs.field(default=None, repr=False)
    """The program to start (stdio)."""
    args: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Arguments of the command (stdio)."""
    env: Mapping[VariableName, str] = attrs.field(factory=dict, repr=False)
    """Environment variables besides a small safe set (stdio). Secrets: ${VAR}."""
    env_file: str | None = attrs.field(default=None, repr=False)
    """File of NAME=VALUE lines, relative to the configuration's directory. `env` takes precedence."""
    cwd: str | None = attrs.field(default=None, repr=False)
    """Working directory (stdio), relative to the configuration's. Default: the home directory."""
    url: str | None = attrs.field(default=None, repr=False)
    """Address of the server: http(s)://, ws(s)://, unix:///path or an absolute path."""
    headers: Mapping[HeaderName, HeaderValue] = attrs.field(factory=dict, repr=False)
    """HTTP headers for every request (http, sse, ws). Secrets: ${VAR}."""
    oauth: OAuth | bool = True
    """OAuth login (http, sse, ws; `mcpd login`), unless `headers` have `Authorization`. false: never."""
    auth: Auth | None = None
    """Login of mcpd itself, without a user (http, sse, ws)."""
    enabled: bool = True
    """false: the server is neither started nor offered."""
    start: StartMode = StartMode.EAGER
    """eager: start with the daemon. lazy: start with the first call; a divided server lists nothing before."""
    trust: Trust | None = None
    """Offered to models. all: everything. changes: the first list and approved changes. none: approved only."""
    sandbox: SandboxMode | SandboxRules | None = None
    """home: reads all but secrets. strict: no home directory, no network. off: none. Or VS Code's object."""
    sandbox_enabled: bool | None = None
    """false: no sandbox in any case. true: one, by default without hosts."""
    origin: EntryOrigin | None = None
    """The entry's origin, written by `mcpd add`."""
    share: Share | None = None
    """all: one instance. workspace (default with ${workspace}): one per directory. session: one per session."""
    workspaces: tuple[DirectoryGlob, ...] = ()
    """Globs of directories (* matches any characters): only clients there see and start the server."""
    workspace_programs: bool = False
    """true: ${workspace} may decide which program runs."""
    idle: Duration | None = None
    """Unused time after which an instance ends. Default: 10m if `share` divides the server, else off."""
    era: EraWish = EraWish.AUTO
    """auto: the newest revision, and a second connection for older clients. handshake, modern: that era."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """Limits on waiting for the server."""
    limits: ServerLimits = attrs.field(factory=ServerLimits)
    """Limits for the server: memory, calls, message sizes."""
    restart: Restart = attrs.field(factory=Restart)
    """Rules for restarting the server."""
    substituted: frozenset[str] = from_the_key(default=frozenset(), repr=False)
    """Values of ${...} references."""
    credentials: frozenset[str] = from_the_key(default=frozenset(), repr=False)
    """Values or defaults of ${...} references that are credentials, for redaction."""
    identity: str = from_the_key(default="", repr=False)
    """Identifies the server that the entry means (`lock_file.identity_of`); approvals are kept under it."""
    confined: SandboxRules | None = attrs.field(default=None, metadata={"in_file": False}, repr=False)
    """The sandbox that applies; None without one."""
    faults: tuple[Fault, ...] = from_the_key(default=())
    """Faults of the entry. With any, the server is `failed` and never starts."""
    scripts: Mapping[str, tuple[str, bytes]] = from_the_key(factory=dict, repr=False)
    """The code and the definition of each script; only the server of scripts has them."""
    instance: Instance | None = attrs.field(default=None, metadata={"in_file": False})
    """None if all clients share the server."""

    @property
    def awaits(self) -> tuple[str, ...]:
        """Variables that the entry refers to but that are not set."""
        return tuple(fault.variable for fault in self.faults if fault.variable is not None)

    @property
    def label(self) -> str:
        """The instance's name in logs, metrics and `mcpd status`."""
        return self.name if self.instance is None else self.instance.label

    @property
    def login(self) -> OAuth | None:
        """A user's OAuth settings; None if the transport has no login, or the entry has other credentials."""
        if self.type not in LOGIN_TYPES or self.oauth is False or self.has_token or self.auth is not None:
            return None
        return self.oauth if isinstance(self.oauth, OAuth) else OAuth()

    @property
    def has_token(self) -> bool:
        """Whether a header holds a token, or the URL varies from run to run (a login is for one URL)."""
        return "\0" in (self.url or "") or any(name.lower() == "authorization" for name in self.headers)

    @cached_property
    def shared_by(self) -> Share:
        """Which clients share an instance."""
        if self.share is not None:
            return self.share
        return Share.WORKSPACE if self.uses_workspace else Share.ALL

    @property
    def uses_workspace(self) -> bool:
        """Whether ${workspace} is in the command, arguments, environment, directory or sandbox."""
        sandbox = self.sandbox.paths if isinstance(self.sandbox, SandboxRules) else ()
        texts = (self.command or "", self.cwd or "", *self.args, *self.env.values(), *sandbox)
        return any(WORKSPACE in text for text in texts)

    @property
    def late(self) -> tuple[str, ...]:
        """The contents of ${run:...} and ${keyring:...} references, without repetitions."""
        secret = (self.auth and self.auth.client_secret) or ""
        texts = (secret, self.url or "", *self.args, *self.env.values(), *self.headers.values())
        return tuple(dict.fromkeys(LATE.findall("\n".join(texts))))

    @property
    def written(self) -> Server:
        """The same server with its marks replaced by references."""
        return self.rewritten(as_written)

    def rewritten(self, change: Callable[[str], str]) -> Server:
        """The same server with `change` applied to all texts that may hold marks."""
        secret = self.auth and self.auth.client_secret
        return attrs.evolve(
            self,
            command=self.command and change(self.command),
            args=tuple(map(change, self.args)),
            env={name: change(value) for name, value in self.env.items()},
            cwd=self.cwd and change(self.cwd),
            url=self.url and change(self.url),
            headers={name: change(value) for name, value in self.headers.items()},
            auth=attrs.evolve(self.auth, client_secret=change(secret)) if self.auth and secret else self.auth,
            confined=self.confined and self.confined.rewritten(change),
        )


USUAL = "usual"
"""The value of `preload` that means the tools called most."""


@attrs.frozen(kw_only=True)
class Profile:
    """The view of clients that name this profile."""

    name: str = from_the_key()
    """Its key in `profiles`."""
    description: str | None = None
    """The profile's purpose."""
    surface: str = DEFAULT_SURFACE
    """The set of meta-tools. auto: the one that fits the client."""
    lazy: bool = True
    """false: show every tool, like the `full` surface."""
    categories: tuple[str, ...] | None = None
    """The profile's categories. null: all."""
    core_tools: tuple[str, ...] | None = None
    """Tools that the `search` surface lists from the start. null: those called most."""
    preload: tuple[str, ...] | str = ()
    """Tools that the `load` surface loads at the start. usual: those called most."""
    instructions: str | None = None
    """Instructions for the client, instead of mcpd's own."""
    answer_tokens: AnswerTokens = 8000
    """Longest answer of a meta-tool in tokens of 4 bytes."""
    auto_load: bool = False
    """true: on the `load` surface, a call loads its tool."""
    prompt: str | None = None
    """A text appended to the instructions."""
    excluded_tools: tuple[str, ...] = ()
    """Tools to hide; a bare name for every server."""
    included_optional_tools: tuple[str, ...] = ()
    """Tools to show although the profile's categories lack or disable them."""
    tool_description_overrides: Mapping[str, str] = attrs.field(factory=dict)
    """Descriptions for this profile, by tool name."""
    prompts: bool = True
    """false: hide all prompts."""
    resources: bool = True
    """false: hide all resources and resource templates."""
    read_resource: bool = False
    """true: add a meta-tool that reads resources."""
    permissions: PermissionRules = ()
    """Rules for calls; the first that matches decides."""
    schemas: SchemaForm = SchemaForm.ORIGINAL
    """original: input schemas as servers write them. openai: without keywords that OpenAI refuses."""
    read_only_call: bool = True
    """false: no separate call tool for read-only tools on `category`, `browse` and `search`."""
    run_code: bool = False
    """true: add meta-tools that run a Python script, which calls tools, and show their types (extra `code`)."""
    scripts: tuple[str, ...] = ()
    """Scripts of the directory `scripts` that are tools of this profile. "*": all."""
    script_limits: ScriptLimits = attrs.field(factory=ScriptLimits)
    """Limits of each script."""
    results: Results = attrs.field(factory=Results)
    """Results that are too large."""
    limits: ProfileLimits = attrs.field(factory=ProfileLimits)
    """Limits of the profile's clients."""
    deferred_loading: bool | None = None
    """true: like surface `search`. false: like surface `full`. null: as `surface` says."""

    @property
    def preloaded(self) -> tuple[str, ...]:
        """The value of `preload` as a tuple."""
        return (self.preload,) if isinstance(self.preload, str) else self.preload


@attrs.frozen(kw_only=True)
class Search:
    """Tool search in addition to keywords."""

    semantic: bool = False
    """true: search by meaning, too (extra `semantic`)."""
    model: str | None = None
    """Directory of a model2vec model. null: the extra's."""


@attrs.frozen(kw_only=True)
class Summaries:
    """An OpenAI-compatible endpoint that shortens tool descriptions."""

    base_url: WebUrl = attrs.field(repr=False)
    """URL of the endpoint: https://host/v1."""
    model: str
    """Name of the model."""
    api_key_env: KeyName | None = None
    """NAME of the variable that holds the key."""
    kept_key: str | None = from_the_key(default=None, repr=False)
    """The key from the variable file; a variable of the environment takes precedence."""
    timeout: Seconds = 60
    """Limit for one answer."""
    batch: Count = 20
    """Tools per request."""
    per_minute: Count = 20
    """Requests per minute."""


@attrs.frozen(kw_only=True)
class State:
    """Storage of the catalog, epochs, sessions and logins."""

    url: StateUrlText | None = attrs.field(default=None, repr=False)
    """sqlite:////absolute/path or postgresql://... null: SQLite in the state directory."""
    session_idle: Seconds = 30 * 24 * 3600
    """Unused time after which a session with a key is forgotten."""
    logins: LoginPlace = LoginPlace.FILES
    """Storage of logins. files: the state directory. secret-service: the desktop's keyring (that extra)."""


@attrs.frozen(kw_only=True)
class Metrics:
    """Metrics for Prometheus."""

    enabled: bool = False
    """true: `mcpd metrics` prints metrics and `listen` serves them."""
    listen: MetricsAddress | None = None
    """HOST:PORT to serve metrics over TCP, on loopback only."""


@attrs.frozen(kw_only=True)
class Config:
    """The configuration of mcpd."""

    mcp_servers: Mapping[str, Server] = attrs.field(factory=dict)
    """Servers by name, as in other MCP clients."""
    trust: Trust = Trust.ALL
    """Default of servers' `trust`."""
    sandbox: SandboxMode | SandboxRules | None = None
    """Default of servers' `sandbox`."""
    lock: Lock | None = attrs.field(default=None, metadata={"in_file": False}, repr=False)
    """The lock next to the file (`mcpd lock`)."""
    script_faults: tuple[Fault, ...] = from_the_key(default=())
    """Faults of scripts; a faulty script is left out."""
    categories: Mapping[str, Category] = attrs.field(factory=dict)
    """Categories by name. When absent: one category for each server."""
    lazy: bool = True
    """false: every profile uses the `full` surface."""
    profiles: Mapping[str, Profile] = attrs.field(
        factory=lambda: {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE)}
    )
    """Profiles by name. `default` always exists and is for clients that name none."""
    search: Search = attrs.field(factory=Search)
    """Tool search."""
    summaries: Summaries | None = None
    """Summaries of tool descriptions by a model."""
    state: State = attrs.field(factory=State)
    """Storage of the catalog, sessions and operators' decisions."""
    limits: Limits = attrs.field(factory=Limits)
    """Limits of all clients and servers together."""
    listen: Listen = attrs.field(factory=Listen)
    """Addresses of the daemon."""
    metrics: Metrics = attrs.field(factory=Metrics)
    """Metrics for Prometheus."""
    audit: AuditKeys = attrs.field(factory=AuditKeys)
    """The audit of calls and decisions."""
    telemetry: Telemetry = attrs.field(factory=Telemetry)
    """Traces, metrics and events for OpenTelemetry."""
    registries: tuple[RegistryUrl, ...] = ("https://registry.modelcontextprotocol.io",)
    """URLs of MCP registries (API v0.1) for `mcpd add registry:NAME` and `mcpd search --registry`, in
    order."""
    observe: bool = True
    """false: do not observe the shapes of results."""
    watch: bool = False
    """true: reload the file when it changes."""
    autostart: bool = True
    """false: `mcpd connect` starts no daemon."""
    idle: Duration | None = None
    """Unused time after which a daemon of `mcpd start` or `mcpd connect` ends. Default: off."""
