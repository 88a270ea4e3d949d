"""What `mcpd status` and `mcpd tools` say, as plain data (design.md §6). Reads, never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
from msgspec import Raw

from daemon.config.model import DEFAULT_PROFILE
from daemon.errors import InvalidArguments, ToolDisabled, UnknownServer, UnknownTool
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.base import View
from daemon.surfaces.searching import scored
from daemon.surfaces.table import chosen
from daemon.transports.stdio import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.categories import Member
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.model import Config
    from daemon.context import SessionStatistics
    from daemon.errors import CallError
    from daemon.measures import CallStats, Mended, Noise, StderrTail
    from daemon.surfaces.base import Means, Surface
    from daemon.transports.handshake import Greeting

STDERR_SHOWN = 5
"""Lines of a server's stderr in a status."""

BYTES_PER_TOKEN = 4
"""A rule of thumb for JSON schemas in English; what is computed with it is called an estimate."""


class Observed(Protocol):
    """What an upstream lets be seen."""

    stats: CallStats
    noise: Noise
    stderr: StderrTail
    greeting: Greeting | None
    pid: int | None
    mark: int | None

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""


class Kept(Protocol):
    """How keeping things from one life of the daemon to the next goes (`actors.recorder`)."""

    @property
    def state(self) -> str:
        """`ok`, or `degraded`: what changes is kept in memory only, for now."""

    @property
    def reason(self) -> str:
        """In words: why it is degraded, or what was lost although it is not."""

    @property
    def since(self) -> float:
        """Since when, in seconds since the epoch."""

    @property
    def where(self) -> str:
        """Where things are kept, for people: without a password."""

    @property
    def waiting(self) -> int:
        """Things that are not written yet."""


@attrs.frozen(kw_only=True)
class Wish:
    """Whose view of the tools an operator asks for."""

    profile: str = DEFAULT_PROFILE
    """Which profile."""
    surface: str | None = None
    """Which surface; None is the profile's."""


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """What does not change while the daemon runs."""

    version: str
    """Of mcpd."""
    pid: int
    """Our process id."""
    started_at: float
    """Seconds since the epoch."""
    socket: str
    """Where clients connect."""
    control_socket: str
    """Where operators connect."""
    config: str
    """The configuration file."""
    directory: str = ""
    """Where it was started: what is relative begins there."""
    state: str = ""
    """The state directory."""
    unrecorded: str = ""
    """Why what it starts is not written down there (`processes.starts`); empty if it is."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Its environment, which nobody else can read. Only what every server gets of it is shown, and names."""


@attrs.frozen(kw_only=True)
class Reporter:
    """Makes reports."""

    facts: DaemonFacts
    """About the daemon."""
    config: Callable[[], Config]
    """The configuration as it is now."""
    catalog: Callable[[], Catalog]
    """The newest catalog."""
    upstreams: Mapping[str, Observed]
    """Running servers by name."""
    sessions: Callable[[], Iterable[SessionStatistics]]
    """Open sessions."""
    surfaces: Mapping[str, Surface]
    """Surfaces by name."""
    means: Means
    """What surfaces work with."""
    mended: Mended
    """How often arguments had to be repaired, by client."""
    redact: Callable[[str], str]
    """Takes secrets out of what servers said."""
    wall: Callable[[], float]
    """Seconds since the epoch."""
    persistence: Callable[[], Kept] | None = None
    """How keeping goes; None where nothing is kept."""
    metrics: Callable[[], Mapping[str, object]] | None = None
    """What was counted, in short (`daemon.metrics`); None where nothing is."""
    connections: Callable[[], Mapping[str, object]] | None = None
    """How many are connected through each door, and how many were refused."""
    summarizer: Callable[[], Mapping[str, object] | None] | None = None
    """How the model that shortens descriptions does, by field; None where there is none."""

    def status(self, memory: Mapping[int, int]) -> dict[str, object]:
        """The whole status.

        Args:
            memory: resident bytes of each child's tree, by its mark.
        """
        catalog = self.catalog()
        return {
            "daemon": self._daemon(catalog),
            "servers": {
                name: {**self._server(entry, memory), **self._learned(entry, catalog)}
                for name, entry in catalog.servers.items()
            },
            "sessions": [_session(session) for session in self.sessions()],
            "repairs": self.mended.by_client(),
            "unresolved": sorted({name for c in catalog.categories.values() for name in c.unresolved}),
            "switchedOff": sorted(f"{server}/{tool}" if tool else server for server, tool in catalog.switched),
            **self._counted(),
        }

    def tools(self, only: str | None, wish: Wish | None = None) -> dict[str, object]:
        """What exists, and what a model sees of it.

        Args:
            only: one category's name; None for all.
            wish: whose view of it; None is a client's that asks for nothing.

        Raises:
            InvalidArguments: there is no such profile or surface.
        """
        catalog = self.catalog()
        surface, view = self._seat(catalog, wish or Wish())
        return {
            "categories": {
                category.name: {
                    "description": category.description,
                    "servers": list(category.servers),
                    "tools": {key: _tool(catalog, member) for key, member in category.members.items()},
                }
                for category in catalog.categories.values()
                if only in {None, category.name}
            },
            "surface": {
                "name": surface.name,
                "instructions": surface.instructions(view),
                "tools": [Raw(tool) for tool in surface.list_tools(view)],
            },
        }

    def refusal(self, server: str, tool: str) -> CallError | None:
        """Why a model could not call a tool either: it does not exist, or every category switches it off."""
        catalog = self.catalog()
        entry = catalog.servers.get(server)
        if entry is None:
            # A new configuration leaves it out, and its child is being stopped.
            return UnknownServer(f"server {server} is no longer in mcpd's configuration", server=server)
        known = entry.tools
        if known is not None and tool not in known:
            return UnknownTool(f"server {server} has no tool {tool!r}. {choices(known, tool)}", tool=tool)
        if (server, tool) in catalog.switched:
            text = f"{tool} is switched off by an operator; `mcpd enable {server}/{tool}` switches it on again"
            return ToolDisabled(text, tool=tool)
        if (server, tool) in catalog.off:
            return ToolDisabled(f"{tool} is switched off in mcpd's configuration", tool=tool)
        return None

    def search(self, queries: list[str], category: str | None, limit: int, wish: Wish) -> dict[str, object]:
        """What a tool search finds, with scores.

        Raises:
            InvalidArguments: there is no such profile.
            UnknownCategory: there is no such category.
        """
        _surface, view = self._seat(self.catalog(), wish)
        return scored(view, queries, category, limit)

    def _seat(self, catalog: Catalog, wish: Wish) -> tuple[Surface, View]:
        config = self.config()
        profile = config.profiles.get(wish.profile)
        if profile is None:
            raise InvalidArguments(
                f"no profile is named {quoted(wish.profile)}. {choices(config.profiles, wish.profile)}"
            )
        # An operator who names a surface wants to see it, whatever the switches say.
        name = wish.surface or chosen(config, profile)
        if name not in self.surfaces:
            raise InvalidArguments(f"no surface is named {quoted(name)}. {choices(self.surfaces, name)}")
        return self.surfaces[name], View(catalog=catalog, profile=profile, now=self.wall(), means=self.means)

    def _daemon(self, catalog: Catalog) -> dict[str, object]:
        surface, view = self._seat(catalog, Wish())
        shown = sum(len(tool) for tool in surface.list_tools(view))
        tools = [tool for entry in catalog.servers.values() for tool in (entry.tools or {}).values()]
        schemas = sum(len(tool.raw) for tool in tools)
        return {
            "version": self.facts.version,
            "pid": self.facts.pid,
            "startedAt": round(self.facts.started_at, 3),
            "uptimeSeconds": round(self.wall() - self.facts.started_at, 3),
            "socket": self.facts.socket,
            "controlSocket": self.facts.control_socket,
            "config": self.facts.config,
            "servers": len(catalog.servers),
            "available": sum(entry.available for entry in catalog.servers.values()),
            "tools": len(tools),
            "schemaBytes": schemas,
            "surfaceBytes": shown,
            "estimatedTokensSaved": max(0, schemas - shown) // BYTES_PER_TOKEN,
            **self._persistence(),
            **self._surroundings(),
        }

    def _surroundings(self) -> dict[str, object]:
        """For `mcpd doctor`, which cannot look for itself: the daemon is closed to its user."""
        if not self.facts.environ:
            return {}
        return {
            "directory": self.facts.directory,
            "stateDirectory": self.facts.state,
            "unrecorded": self.facts.unrecorded,
            "environment": child_environment(self.facts.environ, {}),
            "variables": sorted(self.facts.environ),
        }

    def _persistence(self) -> dict[str, object]:
        if self.persistence is None:
            return {}
        kept = self.persistence()
        told = {
            "state": str(kept.state),
            "reason": self.redact(kept.reason),
            "since": round(kept.since, 3),
            "where": self.redact(kept.where),
            "waiting": kept.waiting,
        }
        return {"persistence": told}

    def _counted(self) -> dict[str, object]:
        counted: dict[str, object] = {} if self.metrics is None else {"metrics": self.metrics()}
        if self.connections is not None:
            counted["connections"] = self.connections()
        summarizer = None if self.summarizer is None else self.summarizer()
        if summarizer is None:
            return counted
        told = {
            _camel(name): self.redact(value) if isinstance(value, str) else value
            for name, value in summarizer.items()
        }
        return {**counted, "summarizer": told}

    def _server(self, entry: ServerEntry, memory: Mapping[int, int]) -> dict[str, object]:
        status = entry.status
        due = status.next_retry_at
        described: dict[str, object] = {
            "state": str(status.state),
            "since": round(status.since, 3),
            "attempt": status.attempt,
            "nextRetryInMs": None if due is None else max(0, round((due - self.wall()) * 1000)),
            "reason": self.redact(status.reason),
            "restarts": status.restarts,
            "type": str(self.config().mcp_servers[entry.name].type),
            "tools": len(entry.tools or ()),
            "epoch": entry.epoch,
            "quarantined": {self.redact(name): self.redact(why) for name, why in entry.quarantined.items()},
            "hidden": {self.redact(name): self.redact(why) for name, why in entry.hidden.items()},
            "listingError": self.redact(entry.listing_error),
        }
        return {**described, **self._observed(self.upstreams.get(entry.name), memory)}

    def _learned(self, entry: ServerEntry, catalog: Catalog) -> dict[str, object]:
        return {
            "refreshedAt": round(entry.refreshed_at, 3) or None,
            "recalled": entry.recalled,
            "switchedOff": sum((entry.name, tool) in catalog.off for tool in entry.tools or ()),
            "summary": self.redact(entry.summary.text) if entry.summary else "",
        }

    def _observed(self, upstream: Observed | None, memory: Mapping[int, int]) -> dict[str, object]:
        if upstream is None:
            return _UNOBSERVED
        greeting = upstream.greeting
        return {
            "stderr": [self.redact(line) for line in upstream.stderr.last(STDERR_SHOWN)],
            "pid": upstream.pid,
            "rssBytes": None if upstream.mark is None else memory.get(upstream.mark),
            "calls": upstream.stats.calls,
            "errors": upstream.stats.errors,
            "inFlight": upstream.in_flight,
            "p50Ms": upstream.stats.percentile_ms(0.5),
            "p95Ms": upstream.stats.percentile_ms(0.95),
            "protocol": greeting.version if greeting else "",
            "serverInfo": self.redact(greeting.server_info) if greeting else "",
            "noise": {"count": upstream.noise.count, "first": self.redact(upstream.noise.first)},
        }


_UNOBSERVED: dict[str, object] = {
    "stderr": [],
    "pid": None,
    "rssBytes": None,
    "calls": 0,
    "errors": 0,
    "inFlight": 0,
    "p50Ms": None,
    "p95Ms": None,
    "protocol": "",
    "serverInfo": "",
    "noise": {"count": 0, "first": ""},
}
"""A server that is disabled has nothing to observe."""


def _camel(name: str) -> str:
    """A field's name as JSON has it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _session(session: SessionStatistics) -> dict[str, object]:
    return {
        "number": session.number,
        "key": session.key,
        "client": session.client,
        "protocol": session.protocol,
        "profile": session.profile,
        "surface": session.surface,
        "since": round(session.since, 3),
        "calls": session.calls,
        "inFlight": session.in_flight,
        "loadedTools": session.loaded,
        "repairedCalls": session.repaired,
    }


def _tool(catalog: Catalog, member: Member) -> dict[str, object]:
    entry = catalog.servers[member.server]
    tool = (entry.tools or {}).get(member.tool)
    known = "" if tool is None else tool.description
    return {
        "server": member.server,
        "description": known if member.description is None else member.description,
        "enabled": member.enabled,
        "listed": member.listed,
        "available": member.listed and member.enabled and entry.available,
        "schemaHash": None if tool is None else tool.schema_hash,
    }
