"""Rules of a configuration whose types are right: names must exist, values and permissions must make sense.

Rules within one server's entry are in `server_rules`, those of `state` in `state_url`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from daemon.config.jsonc import ROOT, below
from daemon.config.listen import is_loopback, split_authority
from daemon.config.model import DEFAULT_SURFACE, MAX_PORT
from daemon.config.names import (
    CLIENT_PREFIX,
    TITLE_LENGTH,
    ToolReference,
    matches,
    pattern_problem,
    read_reference,
    title_is_sound,
    tool_name_is_sound,
)
from daemon.config.server_rules import missing_faults, name_faults, server_faults
from daemon.config.state_url import state_faults
from daemon.errors import Fault
from daemon.kit.later import later
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from daemon.config import listen
    from daemon.config.model import Category, Config, Metrics, PermissionRule, Profile, Summaries


MAX_RULES = 256
"""Rules of one profile: each new list of tools is judged by all of them, in a microsecond each."""

_WILD = frozenset("*?[")


def permission_faults(rules: Sequence[PermissionRule], trail: str) -> Iterator[Fault]:
    """Everything wrong with the rules of one profile."""
    if len(rules) > MAX_RULES:
        yield Fault(path=trail, message=f"{len(rules)} rules are too many; there may be {MAX_RULES}")
    for number, rule in enumerate(rules):
        here = below(trail, number)
        if rule.match is None and rule.annotations is None:
            message = 'this rule does not say for which tools it is: write "match": "*" if it is for all'
            yield Fault(path=here, message=message)
        if rule.match is not None and (problem := pattern_problem(rule.match)):
            yield Fault(path=below(here, "match"), message=problem)
        if rule.annotations is not None and not rule.annotations.wanted:
            message = 'this fits every tool: write "destructive": true or the like, or remove the key'
            yield Fault(path=below(here, "annotations"), message=message)


def unknown_servers(rules: Sequence[PermissionRule], trail: str, servers: Collection[str]) -> Iterator[Fault]:
    """Rules that no tool can match, since no server is named as they say."""
    for number, rule in enumerate(rules):
        server = None if rule.match is None else server_in(rule.match, servers)
        if server is not None and not any(fnmatchcase(name, server) for name in servers):
            message = f"no tool can match this: unknown server {quoted(server)}{suggestion(server, servers)}"
            yield Fault(path=below(below(trail, number), "match"), message=message)


def server_in(pattern: str, servers: Collection[str]) -> str | None:
    """The server that a pattern names, itself perhaps a glob; None if it may be any."""
    if pattern.startswith("/"):
        return None
    head = read_reference(pattern, servers).server
    # A star passes over slashes: `*/read` fits what `*` fits.
    return None if head is None or head.startswith("*") else head


def unreachable(rules: Sequence[PermissionRule], trail: str) -> Iterator[Fault]:
    """Rules for tools that an earlier one is for already: the first that fits wins."""
    for number, rule in enumerate(rules):
        earlier = next((n for n, other in enumerate(rules[:number]) if covers(other, rule)), None)
        if earlier is None:
            continue
        same = rules[earlier].then is rule.then
        message = (
            f"this rule is never reached: the first that fits wins, and rule {earlier + 1} fits every tool that"
            f" this one is for and says {'the same' if same else quoted(str(rules[earlier].then))}."
            f" Remove this one{'' if same else ', or move it before that'}"
        )
        yield Fault(path=below(trail, number), message=message)


def covers(earlier: PermissionRule, later: PermissionRule) -> bool:
    """Whether one rule surely fits every tool that another one fits; False where that is not plain."""
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


if not TYPE_CHECKING:
    listen = later("daemon.config.listen")


_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@attrs.frozen(kw_only=True)
class Named:
    """The names in a file, including those of entries that have faults themselves."""

    servers: tuple[str, ...]
    """Keys of `mcpServers`."""
    categories: tuple[str, ...]
    """Keys of `categories`; without any, each server is a category."""
    profiles: tuple[str, ...]
    """Keys of `profiles`."""
    surfaces: tuple[str, ...] = ()
    """The surfaces of this daemon; empty if they are unknown."""


def check(config: Config, named: Named, earlier: Sequence[Fault]) -> list[Fault]:
    """All faults of a configuration whose types are right.

    `earlier` faults were found while it was read, and what they are about is missing from `config`: a fault
    that only repeats one of them is not reported.
    """
    titles = [
        *name_faults(named.servers, below(ROOT, "mcpServers")),
        *title_faults(named.categories, below(ROOT, "categories")),
        *title_faults(named.profiles, below(ROOT, "profiles")),
    ]
    entries = [fault for fault in _entry_faults(config, named, earlier) if not _echoes(fault, earlier)]
    return [*titles, *entries]


def _entry_faults(config: Config, named: Named, earlier: Sequence[Fault]) -> Iterator[Fault]:
    for name, server in config.mcp_servers.items():
        trail = below(below(ROOT, "mcpServers"), name)
        # Without a valid `type` there is no telling what else belongs in the entry.
        if all(fault.path != below(trail, "type") for fault in earlier):
            yield from _unless_misspelt(missing_faults(server, trail), trail, earlier)
            yield from server_faults(server, trail)
    for name, category in config.categories.items():
        trail = below(below(ROOT, "categories"), name)
        yield from _unless_misspelt(empty_faults(category, trail), trail, earlier)
        yield from category_faults(category, trail, named.servers)
    visible = named.categories or named.servers
    for name, profile in config.profiles.items():
        trail = below(below(ROOT, "profiles"), name)
        if name == SERVERS_FOLLOW:
            yield Fault(
                path=trail, message=f"{name!r} stands for no profile in URLs (/mcp/-/SERVER): rename it"
            )
        yield from profile_faults(profile, trail, named.servers, visible)
        yield from surface_faults(profile, trail, named.surfaces)
    for number, name in enumerate(config.listen.servers):
        if name not in named.servers:
            here = below(below(below(ROOT, "listen"), "servers"), number)
            yield Fault(path=here, message=_unknown_server(name, named.servers))
    yield from listen_faults(config, named.profiles, earlier)
    yield from metrics_faults(config.metrics, below(ROOT, "metrics"))
    yield from state_faults(config.state, below(ROOT, "state"))
    if config.summaries is not None:
        yield from _summaries_faults(config.summaries)


def listen_faults(
    config: Config, profiles: Collection[str] | None = None, earlier: Sequence[Fault] = ()
) -> Iterator[Fault]:
    """Everything wrong with `listen.http`.

    Args:
        config: the configuration.
        profiles: the names of all profiles; None: those of the configuration.
        earlier: the faults that were found while it was read.
    """
    http = config.listen.http
    if http is None:
        return
    trail = below(below(ROOT, "listen"), "http")
    yield from listen.http_faults(http, trail, config.profiles if profiles is None else profiles)
    yield from _unless_misspelt(listen.closing_faults(http, trail), trail, earlier)
    if config.metrics.listen is not None and listen.served_by_http(http, config.metrics.listen):
        message = f"listen.http serves /metrics on {quoted(http.address)} already: remove this key"
        yield Fault(path=below(below(ROOT, "metrics"), "listen"), message=message)


def _summaries_faults(summaries: Summaries) -> Iterator[Fault]:
    # Neither is repeated: a url may hold a password, and what is no variable's name may be the key itself.
    if not _is_web(summaries.base_url):
        message = "write the url of an OpenAI-compatible endpoint, up to its version: https://HOST/v1"
        yield Fault(path=below(below(ROOT, "summaries"), "baseUrl"), message=message)
    if summaries.api_key_env is not None and not _ENVIRONMENT_NAME.fullmatch(summaries.api_key_env):
        message = "write the NAME of the environment variable that holds the key, not the key"
        yield Fault(path=below(below(ROOT, "summaries"), "apiKeyEnv"), message=message)


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _unless_misspelt(missing: Iterable[Fault], trail: str, earlier: Sequence[Fault]) -> Iterator[Fault]:
    """What an entry lacks, unless the entry has other faults: one may be the missing key, misspelt."""
    if not any(_within(fault.path, trail) for fault in earlier):
        yield from missing


def _echoes(fault: Fault, earlier: Iterable[Fault]) -> bool:
    """Whether an earlier fault is about the same place, something within it or something around it."""
    return any(_within(fault.path, other.path) or _within(other.path, fault.path) for other in earlier)


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


SUGGESTED = "127.0.0.1:9464"
"""An address for `metrics.listen`; the port is from Prometheus' list of default ports for exporters."""


def metrics_faults(metrics: Metrics, trail: str) -> Iterator[Fault]:
    """Everything wrong with `metrics`: without a password, only this machine may be served."""
    if metrics.listen is None:
        return
    here = below(trail, "listen")
    host, port = split_authority(metrics.listen)
    if host is None or port is None or not 0 < port <= MAX_PORT:
        message = f"{quoted(metrics.listen)} is not HOST:PORT: write {SUGGESTED}"
        yield Fault(path=here, message=message)
    elif not is_loopback(host):
        message = (
            f"{quoted(host)} is no loopback address, and metrics have no password. Write {SUGGESTED}, and let a"
            " proxy serve other machines"
        )
        yield Fault(path=here, message=message)


ANY_SERVER = "*"
"""Stands for any server: no server can have this name."""


SERVERS_FOLLOW = "-"
"""Stands in the place of a profile in the paths of HTTP where servers are named instead."""


def title_faults(names: Iterable[str], trail: str) -> Iterator[Fault]:
    """Names that categories or profiles may not have."""
    for name in names:
        if not title_is_sound(name):
            message = f"this name must have 1 to {TITLE_LENGTH} printable characters"
            yield Fault(path=below(trail, name), message=message)


def category_faults(category: Category, trail: str, servers: Collection[str]) -> Iterator[Fault]:
    """Everything wrong with one category."""
    if category.server is not None and category.server not in servers:
        yield Fault(path=below(trail, "server"), message=_unknown_server(category.server, servers))
    here = below(trail, "tools")
    tools = category.tools
    names = [(below(below(here, "includeNames"), i), name) for i, name in enumerate(tools.include_names)]
    yield from reference_faults(names, category.server, servers)
    changed = [(below(below(here, "overrides"), name), name) for name in tools.overrides]
    yield from reference_faults(changed, category.server, servers)
    for key, patterns in (
        ("includePatterns", tools.include_patterns),
        ("excludePatterns", tools.exclude_patterns),
    ):
        for index, pattern in enumerate(patterns):
            yield from _pattern_faults(pattern, below(below(here, key), index))


def empty_faults(category: Category, trail: str) -> Iterator[Fault]:
    """A fault for a category that can hold no tool."""
    tools = category.tools
    if category.server is None and not tools.include_names and not tools.include_patterns:
        message = "this category has no tools: write a 'server', or tools.includeNames as server/tool"
        yield Fault(path=trail, message=message)


def reference_faults(
    names: Iterable[tuple[str, str]], server: str | None, servers: Collection[str], *, bare: bool = False
) -> Iterator[Fault]:
    """Names of tools that cannot exist, or that repeat an earlier one, maybe in another spelling.

    Args:
        names: the trail and the name of each.
        server: the server that bare names belong to.
        servers: all configured servers.
        bare: whether a name may omit the server.
    """
    seen: dict[tuple[str, str], str] = {}
    for here, name in names:
        reference = read_reference(name, servers)
        message = _wrong_reference(reference, name, server or (ANY_SERVER if bare else None), servers)
        key = (reference.server or server or "", reference.tool)
        if message is not None:
            yield Fault(path=here, message=message)
        elif key in seen:
            yield Fault(path=here, message=_repeated(name, seen[key]))
        else:
            seen[key] = name


def _wrong_reference(
    reference: ToolReference, name: str, server: str | None, servers: Collection[str]
) -> str | None:
    if reference.server is None and server is None:
        example = next(iter(servers), "server")
        return f"{quoted(name)} does not say whose tool it is: write 'server/tool', as in '{example}/{name}'"
    if reference.server is not None and reference.server not in servers:
        return _unknown_server(reference.server, servers)
    if not tool_name_is_sound(reference.tool):
        return "a tool's name is 1 to 128 bytes of printable characters"
    return None


def _repeated(name: str, earlier: str) -> str:
    if name == earlier:
        return f"{quoted(name)} stands here twice: keep one of them"
    return f"{quoted(name)} is the same tool as {quoted(earlier)}: keep one of them"


def _unknown_server(name: str, servers: Collection[str]) -> str:
    return f"unknown server {quoted(name)}{suggestion(name, servers)}"


def _pattern_faults(pattern: str, here: str) -> Iterator[Fault]:
    problem = pattern_problem(pattern)
    if problem:
        yield Fault(path=here, message=problem)


MOST_ANSWER_TOKENS = 65_536
"""Tokens, 256 KiB: an answer is built in the turn of its request, and no model reads more at once."""


def profile_faults(
    profile: Profile, trail: str, servers: Collection[str], categories: Collection[str]
) -> Iterator[Fault]:
    """Everything wrong with one profile, except its surface."""
    if profile.answer_tokens > MOST_ANSWER_TOKENS:
        message = f"{profile.answer_tokens} is too much; it must be {MOST_ANSWER_TOKENS} or less"
        yield Fault(path=below(trail, "answerTokens"), message=message)
    here = below(trail, "categories")
    for index, name in enumerate(profile.categories or ()):
        if name not in categories:
            message = f"unknown category {quoted(name)}{suggestion(name, categories)}"
            yield Fault(path=below(here, index), message=message)
        elif name in (profile.categories or ())[:index]:
            yield Fault(path=below(here, index), message=f"{quoted(name)} stands here twice")
    for key, tools in (
        ("coreTools", profile.core_tools or ()),
        ("preload", profile.preloaded),
        ("excludedTools", profile.excluded_tools),
        ("includedOptionalTools", profile.included_optional_tools),
    ):
        yield from _tool_faults(tools, below(trail, key), servers)
    yield from permission_faults(profile.permissions, below(trail, "permissions"))
    overrides = below(trail, "toolDescriptionOverrides")
    named = [(below(overrides, name), name) for name in profile.tool_description_overrides]
    yield from reference_faults(named, None, servers, bare=True)


def surface_faults(profile: Profile, trail: str, surfaces: Sequence[str]) -> Iterator[Fault]:
    """A fault for a surface that this daemon does not have, if its surfaces are known."""
    known = (DEFAULT_SURFACE, *surfaces)
    if surfaces and profile.surface not in known:
        message = f"unknown surface {quoted(profile.surface)}{suggestion(profile.surface, known)}"
        yield Fault(path=below(trail, "surface"), message=message)


def _tool_faults(tools: Sequence[str], trail: str, servers: Collection[str]) -> Iterator[Fault]:
    named = [(below(trail, index), name) for index, name in enumerate(tools)]
    yield from reference_faults(named, None, servers, bare=True)
