"""What `mcpd status` and `mcpd tools` say, as plain data (design.md §6). Reads, never changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from msgspec import Raw

from daemon.config.model import DEFAULT_PROFILE
from daemon.errors import InvalidArguments, ToolDisabled, UnknownServer, UnknownTool
from daemon.server_report import server_report
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.base import View
from daemon.surfaces.listing import usual_tools
from daemon.surfaces.searching import scored
from daemon.surfaces.table import by_profile, chosen
from daemon.tally import tokens_in
from daemon.transports.stdio import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.categories import Member
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.clients.context import SessionStatistics
    from daemon.config.model import Config
    from daemon.config.redactors import Redactors
    from daemon.errors import CallError
    from daemon.measures import Mended
    from daemon.server_report import Observed
    from daemon.surfaces.base import Means, Surface


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
    redact: Redactors
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
            "servers": {name: self._server(entry, catalog, memory) for name, entry in catalog.servers.items()},
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

    def stderr(self, server: str, after: int, source: str, last: int) -> dict[str, Any]:
        """Lines of a server's stderr, as the server wrote them.

        Args:
            server: which; it runs.
            after: the number of the last line that is known.
            source: whose number that is: one of another, an earlier daemon's, says nothing here.
            last: most lines.
        """
        tail = self.upstreams[server].stderr
        here = f"{self.facts.pid}.{self.facts.started_at}.{tail.birth}"
        after = after if source == here else 0
        fresh = tail.after(after)
        configured = self.config().mcp_servers.get(server)
        return {
            "server": server,
            "type": str(configured.type) if configured else "",
            "lines": fresh[-last:],
            "next": tail.written,
            "dropped": max(0, tail.written - after - len(fresh)) if after else 0,
            "source": here,
        }

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
        return self.surfaces[name], View(
            catalog=catalog,
            profile=profile,
            now=self.wall,
            means=self.means,
            usual=partial(usual_tools, self.means, catalog, profile),
        )

    def _daemon(self, catalog: Catalog) -> dict[str, object]:
        surface, view = self._seat(catalog, Wish())
        shown, offered = sum(len(tool) for tool in surface.list_tools(view)), view.offer.listing_bytes
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
            "lazy": self.config().lazy,
            "surfaces": by_profile(self.config()),
            "servers": len(catalog.servers),
            "available": sum(entry.of_use for entry in catalog.servers.values()),
            "tools": len(tools),
            "schemaBytes": schemas,
            "offeredTools": len(view.offer.tools),
            "offeredBytes": offered,
            "surfaceBytes": shown,
            "estimatedTokensSaved": tokens_in(offered - shown),
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

    def _server(self, entry: ServerEntry, catalog: Catalog, memory: Mapping[int, int]) -> dict[str, object]:
        return {
            "type": str(self.config().mcp_servers[entry.name].type),
            **server_report(
                entry,
                catalog,
                self.upstreams.get(entry.name),
                redact=self.redact.of(entry.name),
                now=self.wall(),
                memory=memory,
            ),
        }


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
        "estimatedTokensNotSent": session.tokens_not_sent,
        "defersTools": session.tokens_not_sent is None,
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
