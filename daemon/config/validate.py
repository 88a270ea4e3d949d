"""The rules that span entries: what is named elsewhere must exist, what is given must make sense together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from daemon.config.hints import quoted
from daemon.config.jsonc import ROOT, below
from daemon.config.metrics_rules import metrics_faults
from daemon.config.selection_rules import (
    category_faults,
    empty_faults,
    profile_faults,
    surface_faults,
    title_faults,
)
from daemon.config.server_rules import missing_faults, name_faults, server_faults
from daemon.config.state_url import state_faults
from daemon.errors import Fault
from daemon.kit.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daemon.config.model import Config, Summaries

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@attrs.frozen(kw_only=True)
class Named:
    """The names that a file gives, also to entries that are themselves at fault."""

    servers: tuple[str, ...]
    """Keys of `mcpServers`."""
    categories: tuple[str, ...]
    """Keys of `categories`; without any, each server is a category."""
    profiles: tuple[str, ...]
    """Keys of `profiles`."""
    surfaces: tuple[str, ...] = ()
    """What this daemon can show; empty when nobody said."""


def check(config: Config, named: Named, earlier: Sequence[Fault]) -> list[Fault]:
    """All faults of a configuration whose types are right.

    `earlier` faults were found while it was read, and what they are about was left out of `config`: a fault
    that is only their echo is not reported.
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
        # With an unreadable `type` nobody can say what else belongs into the entry.
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
        yield from profile_faults(profile, trail, named.servers, visible)
        yield from surface_faults(profile, trail, named.surfaces)
    for number, name in enumerate(config.listen.servers):
        if name not in named.servers:
            message = f"unknown server {quoted(name)}{suggestion(name, named.servers)}"
            yield Fault(path=f"{below(below(ROOT, 'listen'), 'servers')}[{number}]", message=message)
    yield from metrics_faults(config.metrics, below(ROOT, "metrics"))
    yield from state_faults(config.state, below(ROOT, "state"))
    if config.summaries is not None:
        yield from _summaries_faults(config.summaries)


def _summaries_faults(summaries: Summaries) -> Iterator[Fault]:
    # Neither is repeated: a url may hold a password, and whoever gets the key's name wrong has pasted the key.
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
    """What is missing from an entry, unless the entry has other faults: the missing key may be among them."""
    if not any(_within(fault.path, trail) for fault in earlier):
        yield from missing


def _echoes(fault: Fault, earlier: Iterable[Fault]) -> bool:
    """Whether an earlier fault is about the same place, a part of it or what it is a part of."""
    return any(_within(fault.path, other.path) or _within(other.path, fault.path) for other in earlier)


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))
