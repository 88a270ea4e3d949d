"""Rules between the values of a configuration; each yields pairs of a trail and a message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit

import msgspec

from daemon.config.command_lines import runs_container
from daemon.config.config_model import (
    DEFAULT_SURFACE,
    LATE,
    LOGIN_TYPES,
    WORKSPACE,
    Category,
    Config,
    OAuth,
    PermissionRule,
    Profile,
    Server,
    Share,
    StartMode,
    TransportType,
)
from daemon.config.jsonc import ROOT, below, echoes, is_within
from daemon.config.listen import http_lacks, http_problems, served_by_http
from daemon.config.login_keys import auth_lacks, auth_problems
from daemon.config.names import (
    CLIENT_PREFIX,
    SERVER_NAME,
    TITLE_LENGTH,
    ToolReference,
    matches,
    read_reference,
    title_is_sound,
    tool_name_is_sound,
)
from daemon.config.sandbox_keys import SandboxRules, sandbox_in_force
from daemon.config.tuning import Problems, ServerLimits
from daemon.errors import Fault
from daemon.kit.wording import camel, quoted, suggestion

ANY_SERVER = "*"
"""Stands for any server, since no server can have this name."""

SERVERS_FOLLOW = "-"
"""Takes the place of a profile in HTTP paths that name a server."""

_SERVERS, _LISTEN = below(ROOT, "mcpServers"), below(ROOT, "listen")


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The names in a file, including those of faulty entries."""

    servers: tuple[str, ...]
    categories: tuple[str, ...]
    profiles: tuple[str, ...]
    surfaces: tuple[str, ...] = ()
    """Empty if the surfaces are unknown."""


def check(config: Config, named: Named, earlier: Sequence[Fault]) -> list[Fault]:
    """The faults of a well-typed configuration, without those that only repeat an earlier fault."""
    names = [
        *_at(_SERVERS, name_problems(named.servers)),
        *_at(below(ROOT, "categories"), title_problems(named.categories)),
        *_at(below(ROOT, "profiles"), title_problems(named.profiles)),
    ]
    entries = [fault for fault in _entry_faults(config, named, earlier) if not echoes(fault, earlier)]
    return [*names, *entries]


def _at(trail: str, problems: Problems) -> Iterator[Fault]:
    for where, message in problems:
        inner = where if where[:1] in {"", ".", "["} else f".{where}"
        yield Fault(path=trail + inner, message=message)


def _entry_faults(config: Config, named: Named, earlier: Sequence[Fault]) -> Iterator[Fault]:
    for name, server in config.mcp_servers.items():
        trail = below(_SERVERS, name)
        # Without a valid `type` there is no telling what else belongs in the entry.
        if all(fault.path != below(trail, "type") for fault in earlier):
            yield from _unless_misspelt(_at(trail, server_lacks(server)), trail, earlier)
            yield from _at(trail, server_problems(server))
    for name, category in config.categories.items():
        trail = below(ROOT, "categories", name)
        yield from _unless_misspelt(_at(trail, category_lacks(category)), trail, earlier)
        yield from _at(trail, category_problems(category, named.servers))
    visible = named.categories or named.servers
    for name, profile in config.profiles.items():
        trail = below(ROOT, "profiles", name)
        if name == SERVERS_FOLLOW:
            message = f"{name!r} means no profile in URLs (/mcp/-/SERVER): rename this profile"
            yield Fault(path=trail, message=message)
        yield from _at(trail, profile_problems(profile, named.servers, visible, named.surfaces))
    for number, name in enumerate(config.listen.servers):
        if name not in named.servers:
            here = below(_LISTEN, "servers", number)
            yield Fault(path=here, message=_unknown_server(name, named.servers))
    yield from listen_faults(config, named.profiles, earlier)


def listen_faults(
    config: Config, profiles: Collection[str] | None = None, earlier: Sequence[Fault] = ()
) -> Iterator[Fault]:
    """The faults of `listen.http`; `profiles` are by default those of the configuration."""
    http = config.listen.http
    if http is None:
        return
    trail = below(_LISTEN, "http")
    yield from _at(trail, http_problems(http, config.profiles if profiles is None else profiles))
    yield from _unless_misspelt(_at(trail, http_lacks(http)), trail, earlier)
    if config.metrics.listen is not None and served_by_http(http, config.metrics.listen):
        message = f"listen.http serves /metrics on {quoted(http.address)} already: remove this key"
        yield Fault(path=below(ROOT, "metrics", "listen"), message=message)


def _unless_misspelt(missing: Iterable[Fault], trail: str, earlier: Sequence[Fault]) -> Iterator[Fault]:
    """Report missing keys, but only without other faults there: a misspelt key may be the missing one."""
    if not any(is_within(fault.path, trail) for fault in earlier):
        yield from missing


def name_problems(names: Iterable[str]) -> Problems:
    """The faults of server names."""
    rule = "a server's name is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"
    return ((below("", name), f"{rule}: rename it") for name in names if not SERVER_NAME.fullmatch(name))


def title_problems(names: Iterable[str]) -> Problems:
    """The faults of names of categories or profiles."""
    for name in names:
        if not title_is_sound(name):
            yield below("", name), f"this name must have 1 to {TITLE_LENGTH} printable characters"


_T = TransportType

SCHEMES: Mapping[TransportType, tuple[str, ...]] = {
    _T.HTTP: ("http", "https"),
    _T.SSE: ("http", "https"),
    _T.WS: ("ws", "wss"),
    _T.UNIX: ("unix",),
}

_OF_PROCESSES = ("command", "args", "env", "env_file", "cwd", "sandbox", "sandbox_enabled")

_MEANINGLESS: Mapping[TransportType, tuple[str, ...]] = {
    _T.STDIO: ("url", "headers"),
    _T.HTTP: _OF_PROCESSES,
    _T.SSE: _OF_PROCESSES,
    _T.WS: _OF_PROCESSES,
    _T.UNIX: (*_OF_PROCESSES, "headers"),
}
"""Keys that a transport cannot obey. They are faults, since ignoring them would mislead."""


def infer_type(raw: Mapping[str, object]) -> str:
    """The transport of an entry without `type`: stdio if there is a command, else by the URL's scheme."""
    url = raw.get("url")
    if not isinstance(url, str) or isinstance(raw.get("command"), str):
        return "stdio"
    if url.startswith(("ws://", "wss://")):
        return "ws"
    return "unix" if url.startswith(("unix://", "/")) else "http"


def server_lacks(server: Server) -> Problems:
    """Keys that a server's transport requires but its entry lacks."""
    if server.type is _T.STDIO and not server.command:
        yield "command", "a stdio server needs a command to start; for a remote server write a url"
    if server.type is not _T.STDIO and not server.url:
        schemes = " or ".join(f"{scheme}://" for scheme in SCHEMES[server.type])
        yield "url", f"a server of type {server.type} needs a url, {schemes}..."
    if server.auth is not None:
        yield from ((f"auth.{key}", message) for key, message in auth_lacks(server.auth))


def eager_faults(raw: Mapping[str, object], trail: str) -> Iterator[Fault]:
    """The fault of `start: eager` for a server whose instances clients do not share."""
    if raw.get("start") == StartMode.EAGER:
        message = "clients do not share this server, so it is started when the first needs it: remove this key"
        yield Fault(path=below(trail, "start"), message=message)


def server_problems(server: Server) -> Problems:
    """Contradictions within a server's entry."""
    for key in _MEANINGLESS[server.type]:
        if getattr(server, key):
            message = f"a server of type {server.type} has no '{camel(key)}': remove it, or change 'type'"
            yield camel(key), message
    if server.enabled:
        if problem := _wrong_url(server):
            yield "url", problem
        for key, path in (("command", server.command), ("cwd", server.cwd)):
            if path and WORKSPACE in path and not path.startswith(WORKSPACE):
                yield key, "${workspace} is the absolute path of a directory: begin with it"
    yield from _tuning(server)
    yield from _sharing(server)
    yield from _login(server)
    yield from _own_login(server)


_BEFORE_LATE = re.compile(r"(?:http|ws)s?://[^\0/?#]+[/?#]")


def _wrong_url(server: Server) -> str:
    """The fault of a server's URL. It quotes only the scheme, because a URL may hold a password."""
    kind, url = server.type, LATE.sub("\0", server.url or "")
    if kind is _T.STDIO or not url or (kind is _T.UNIX and url.startswith("/") and "\0" not in url):
        return ""
    if "\0" in url and not _BEFORE_LATE.match(url):
        return "${run:...} and ${keyring:...} can stand after the host of a web address: in its path or query"
    try:
        parts = urlsplit(url)
        valid = parts.port is None or parts.port > 0
    except ValueError:
        parts, valid = SplitResult("", "", "", "", ""), False
    if not valid or re.search(r"\s", url):
        return "this is not a valid url"
    if parts.scheme not in SCHEMES[kind]:
        known = " or ".join(f"{scheme}://" for scheme in SCHEMES[kind])
        fitting = [other for other, schemes in SCHEMES.items() if parts.scheme in schemes]
        hint = f", or set type to {fitting[0]}" if fitting else ""
        return f"the url of a server of type {kind} begins with {known}{hint}"
    if kind is _T.UNIX:
        wrong = parts.netloc or not parts.path.startswith("/")
        return "write the absolute path of the socket: unix:///run/x.sock" if wrong else ""
    return "" if parts.hostname else f"the host is missing: {parts.scheme}://HOST/..."


def _tuning(server: Server) -> Problems:
    restart, timeouts, limits = server.restart, server.timeouts, server.limits
    if restart.cap < restart.base:
        yield "restart.cap", f"must not be less than base ({restart.base:g} s)"
    if timeouts.call_max < timeouts.call:
        yield "timeouts.callMax", f"must not be less than call ({timeouts.call:g} s)"
    if limits.output_bytes is not None and limits.output_bytes > limits.message_bytes:
        yield "limits.outputBytes", f"must not be more than messageBytes ({limits.message_bytes})"
    for key in ("memory_bytes", "cpu", "pids"):
        if getattr(limits, key) is not None and server.type is not _T.STDIO:
            yield f"limits.{camel(key)}", f"mcpd does not run a server of type {server.type}: remove it"


def _sharing(server: Server) -> Problems:
    if (key := _client_program(server)) and not server.workspace_programs:
        message = (
            "with this, a client could run any program through the directory that it names: write a fixed"
            ' path, or "workspacePrograms": true if every client may do so'
        )
        yield key, message
    if server.share is Share.ALL and server.uses_workspace:
        message = (
            "${workspace} differs for each client, so clients cannot share an instance: remove"
            ' this key, or write "workspace" or "session"'
        )
        yield "share", message
    if server.shared_by is Share.ALL and server.limits.instances != ServerLimits().instances:
        message = 'all clients share one instance: remove this key, or write "share": "workspace" or "session"'
        yield "limits.instances", message


def _client_program(server: Server) -> str:
    command = server.command or ""
    by_cwd = server.shared_by is Share.WORKSPACE if server.cwd is None else WORKSPACE in server.cwd
    if WORKSPACE in command or (by_cwd and "/" in command and not command.startswith(("/", "~"))):
        return "command"
    return "env" if WORKSPACE in server.env.get("PATH", "") else ""


def _login(server: Server) -> Problems:
    oauth = server.oauth
    if not isinstance(oauth, OAuth):
        return
    yield from _needless_login(server, "oauth")
    if oauth.client_secret is not None and oauth.client_id is None:
        yield "oauth.clientSecret", "a client secret needs a clientId: write that, too"
    if oauth.client_id is not None and oauth.metadata_url is not None:
        message = "a client is either registered (clientId) or described by a document: remove one of the two"
        yield "oauth.metadataUrl", message


def _needless_login(server: Server, key: str) -> Problems:
    if server.type not in LOGIN_TYPES:
        yield key, f"a server of type {server.type} has no login: remove it"
    elif server.has_token:
        yield key, "the header Authorization overrides a login: remove one of the two"


def _own_login(server: Server) -> Problems:
    if (auth := server.auth) is None:
        return
    yield from _needless_login(server, "auth")
    if isinstance(server.oauth, OAuth):
        yield "auth", "either a user logs in (oauth) or mcpd itself (auth): remove one of the two"
    problems = auth_problems(auth, resolved=server.enabled)
    yield from ((f"auth.{key}", message) for key, message in problems)


def category_lacks(category: Category) -> Problems:
    """The fault of a category that has no tools."""
    tools = category.tools
    if category.server is None and not tools.include_names and not tools.include_patterns:
        yield "", "this category has no tools: write a 'server', or tools.includeNames as server/tool"


def category_problems(category: Category, servers: Collection[str]) -> Problems:
    """Contradictions within a category."""
    if category.server is not None and category.server not in servers:
        yield "server", _unknown_server(category.server, servers)
    tools = category.tools
    yield from _listed("tools.includeNames", tools.include_names, category.server, servers)
    changed = [(below("tools.overrides", name), name) for name in tools.overrides]
    yield from reference_problems(changed, category.server, servers)


def profile_problems(
    profile: Profile, servers: Collection[str], categories: Collection[str], surfaces: Sequence[str]
) -> Problems:
    """Contradictions within a profile; without `surfaces`, the surface is not checked."""
    for index, name in enumerate(profile.categories or ()):
        if name not in categories:
            yield f"categories[{index}]", f"unknown category {quoted(name)}{suggestion(name, categories)}"
        elif name in (profile.categories or ())[:index]:
            yield f"categories[{index}]", f"{quoted(name)} occurs twice"
    for key, tools in (
        ("coreTools", profile.core_tools or ()),
        ("preload", profile.preloaded),
        ("excludedTools", profile.excluded_tools),
        ("includedOptionalTools", profile.included_optional_tools),
    ):
        yield from _listed(key, tools, ANY_SERVER, servers)
    named = [(below("toolDescriptionOverrides", name), name) for name in profile.tool_description_overrides]
    yield from reference_problems(named, ANY_SERVER, servers)
    known = (DEFAULT_SURFACE, *surfaces)
    if surfaces and profile.surface not in known:
        yield "surface", f"unknown surface {quoted(profile.surface)}{suggestion(profile.surface, known)}"


def _listed(key: str, tools: Sequence[str], server: str | None, servers: Collection[str]) -> Problems:
    return reference_problems([(f"{key}[{at}]", name) for at, name in enumerate(tools)], server, servers)


def reference_problems(
    names: Iterable[tuple[str, str]], server: str | None, servers: Collection[str]
) -> Problems:
    """Faults of impossible or repeated tool names; bare names belong to `server`, and None forbids them."""
    seen: dict[tuple[str, str], str] = {}
    for here, name in names:
        reference = read_reference(name, servers)
        message = _wrong_reference(reference, name, server, servers)
        key = (reference.server or server or "", reference.tool)
        if message is not None:
            yield here, message
        elif key in seen:
            earlier = seen[key]
            what = "occurs twice" if name == earlier else f"is the same tool as {quoted(earlier)}"
            yield here, f"{quoted(name)} {what}: keep one of them"
        else:
            seen[key] = name


def _wrong_reference(
    reference: ToolReference, name: str, server: str | None, servers: Collection[str]
) -> str | None:
    if reference.server is None and server is None:
        example = next(iter(servers), "server")
        return f"{quoted(name)} does not name a server: write 'server/tool', as in '{example}/{name}'"
    if reference.server is not None and reference.server not in servers:
        return _unknown_server(reference.server, servers)
    if not tool_name_is_sound(reference.tool):
        return "a tool's name is 1 to 128 bytes of printable characters"
    return None


def _unknown_server(name: str, servers: Collection[str]) -> str:
    return f"unknown server {quoted(name)}{suggestion(name, servers)}"


_WILD = frozenset("*?[")


def unknown_servers(rules: Sequence[PermissionRule], trail: str, servers: Collection[str]) -> Iterator[Fault]:
    """Faults of rules that match no tool because their server does not exist."""
    for number, rule in enumerate(rules):
        server = None if rule.match is None else server_in(rule.match, servers)
        if server is not None and not any(fnmatchcase(name, server) for name in servers):
            message = f"no tool can match this: unknown server {quoted(server)}{suggestion(server, servers)}"
            yield Fault(path=below(trail, number, "match"), message=message)


def server_in(pattern: str, servers: Collection[str]) -> str | None:
    """The server or glob that a pattern names; None if it matches any server."""
    if pattern.startswith("/"):
        return None
    head = read_reference(pattern, servers).server
    # A star passes over slashes: `*/read` fits what `*` fits.
    return None if head is None or head.startswith("*") else head


def unreachable(rules: Sequence[PermissionRule], trail: str) -> Iterator[Fault]:
    """Faults of rules that never apply, because an earlier rule matches all of their tools."""
    for number, rule in enumerate(rules):
        earlier = next((n for n, other in enumerate(rules[:number]) if covers(other, rule)), None)
        if earlier is None:
            continue
        same = rules[earlier].then is rule.then
        message = (
            f"this rule is never reached: the first match wins, and rule {earlier + 1} matches every tool"
            f" of this one and says {'the same' if same else quoted(str(rules[earlier].then))}."
            f" Remove this one{'' if same else ', or move it before that'}"
        )
        yield Fault(path=below(trail, number), message=message)


def covers(earlier: PermissionRule, later: PermissionRule) -> bool:
    """Whether a rule is certain to match every tool that a later one matches."""
    wanted = {} if earlier.annotations is None else earlier.annotations.wanted
    given = {} if later.annotations is None else later.annotations.wanted
    if given.get("read_only"):
        given = {"destructive": False, **given}
    if not wanted.items() <= given.items():
        return False
    if earlier.match is None or earlier.match in {"*", "*/*", later.match}:
        return True
    return later.match is not None and _pattern_covers(earlier.match, later.match)


def _pattern_covers(earlier: str, later: str) -> bool:
    if later.startswith(("/", CLIENT_PREFIX)) or "[" in later:
        return False
    server, slash, tool = later.partition("/")
    if not slash:
        # It is for tools of all servers, and, if it has a star, perhaps for all tools of some.
        return False
    if _WILD.isdisjoint(later):
        return matches(earlier, server, tool)
    # Only stars take in other wildcards: what stands for any text then stands within what they stand for.
    is_plain = _WILD.isdisjoint(earlier.replace("*", "")) and not earlier.startswith(("/", CLIENT_PREFIX))
    return is_plain and "/" in earlier and fnmatchcase(later, earlier)


def remarks(config: Config) -> Iterator[Fault]:
    """Remarks on servers without the default sandbox, on keys without effect, and on commands of secrets."""
    servers = {name: server for name, server in config.mcp_servers.items() if server.enabled}
    alone = [name for name, server in servers.items() if server.type is not _T.STDIO or runs_container(server)]
    if alone and sandbox_in_force(config.sandbox) is not None:
        message = f"containers and servers that mcpd does not start are not in its sandbox: {', '.join(alone)}"
        yield Fault(path=below(ROOT, "sandbox"), message=message)
    for name, server in servers.items():
        for command in (each.removeprefix("run:") for each in server.late if each.startswith("run:")):
            message = f"`{command}` runs each time that the server starts, and not now"
            yield Fault(path=below(_SERVERS, name), message=message)
    wishes = {below(ROOT, "sandbox"): config.sandbox}
    wishes |= {below(ROOT, "mcpServers", name, "sandbox"): server.sandbox for name, server in servers.items()}
    for trail, wish in wishes.items():
        if isinstance(wish, SandboxRules) and wish.network.allow_local_binding:
            message = "no effect: a sandboxed server may always listen on its own loopback interface"
            yield Fault(path=below(trail, "network", "allowLocalBinding"), message=message)
            return
