"""The `full` surface, which lists servers' own tools, and the surface of chosen servers.

A server that is down lists no tools: the instructions and the tool `mcpd_status` name it and the remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from daemon.catalog.offer import Offered
from daemon.catalog.snapshot import ServerEntry
from daemon.kit.wording import some
from daemon.safety.escape import legible
from daemon.states import WAITING, ServerState
from daemon.surfaces import answers, calling, describing
from daemon.surfaces.describing import unlisted, words
from daemon.surfaces.surface import Action, AwaitListing, MetaTool, Reply, Surface, View

STATUS = "mcpd_status"
"""The tool's name; the bridge's tool has the same one while no daemon runs (`bridge.stand_in`)."""

LINES_CHARACTERS = 1000
"""Most characters about all servers that are down: Claude Code shows its model 2 KB of instructions."""

LINE_CHARACTERS = 400
"""Most characters about one server that is down; its failure and remedy take some 200."""


def is_down(entry: ServerEntry) -> bool:
    """Whether a server has failed and is not about to return.

    A failing server counts as down until it serves, or the list would change with each attempt. The first
    failure of a server with known tools does not count: it is usually back before a model reads about it.
    """
    status = entry.status
    if entry.disabled or entry.of_use or status.cause is None:
        return False
    if status.state is ServerState.DEGRADED:
        return True
    parked = status.state in WAITING - {ServerState.BACKOFF}
    return status.attempt > (1 if entry.tools is not None and not parked else 0)


def down_lines(view: View) -> str:
    """The names of all servers that are down, with a line about each; empty if all are up."""
    down = [entry for entry in view.servers.values() if is_down(entry)]
    if not down:
        return ""
    names = some([entry.name for entry in down], answers.MAX_NAMED)
    reasons = [(entry.name, words(entry, entry.trouble)) for entry in down]
    lines = answers.index_lines(reasons, LINES_CHARACTERS, f"{STATUS} tells", LINE_CHARACTERS)
    return f"Down now: {names}.\n{lines}"


def _describe_status(view: View) -> str:
    lines = down_lines(view)
    purpose = "Tell which MCP servers are down now, why, and what the user can do about it."
    return f"{purpose} {lines}" if lines else ""


def _report(view: View, _arguments: bytes, *, patient: bool) -> Reply:  # noqa: ARG001 - as any meta-tool
    absent = [entry for entry in view.servers.values() if not entry.usable or is_down(entry)]
    entries = ((entry.name, answers.unavailable_entry(entry, view.now())) for entry in absent)
    text = describing.absent_lines(absent, answers.room_of(view))
    text = text or "Every MCP server is up, or is started by the next call to it."
    return Reply(answers.result({"unavailableServers": answers.fitting(entries, answers.room_of(view))}, text))


def tool_in_words(tool: Mapping[str, Any]) -> str:
    """A `tools/list` entry as text, for models that get their tools in a prompt."""
    schema = msgspec.json.encode(tool["inputSchema"]).decode()
    return f"## {tool['name']}\n{tool.get('description', '').strip()}\nArguments (JSON Schema): {schema}"


class FullSurface(Surface):
    """Lists all tools, as any MCP server does."""

    name = "full"
    tools = (
        MetaTool(
            name=STATUS,
            describe=_describe_status,
            does=_report,
            exists=lambda view: STATUS not in view.catalog.names.owners,
        ),
    )
    chosen = False

    def instructions(self, view: View) -> str:
        """Name the servers, and say why some are down."""
        names = list(view.servers)
        if not names:
            return "No MCP servers are configured."
        said = f"The tools of these MCP servers: {some(names, answers.MAX_NAMED)}."
        return "\n".join(filter(None, (said, down_lines(view))))

    def awaits(self, view: View) -> tuple[str, ...]:
        """All servers that have not listed their tools: many clients ask only once."""
        return unlisted(view.servers.values())

    def listed(self, view: View) -> Collection[Offered]:
        """All tools that the profile offers; clients that show apps also get those that only apps may call."""
        return view.offer.apps.all if view.apps else view.offer.all

    def list_listed(self, view: View) -> tuple[bytes, ...]:
        """The entries of `listed`, as their servers describe them."""
        return view.offer.apps.listing if view.apps else view.offer.listing

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward to the tool of that name."""
        found = calling.find(view, name, patient=patient, chosen=self.chosen)
        return found if isinstance(found, AwaitListing) else calling.direct(found, arguments)


class ItselfSurface(FullSurface):
    """Shows chosen servers as themselves."""

    name = "itself"
    chosen = True

    def instructions(self, view: View) -> str:
        """Each server's own instructions, or why the server is absent."""
        servers = view.catalog.servers
        said = [
            (entry.name, _why_absent(entry) or legible(entry.said.instructions)) for entry in servers.values()
        ]
        gone = [answers.quoted(name) for name in view.catalog.chosen if name not in servers]
        said += [(name, "not in mcpd's configuration; its tools appear here once it is") for name in gone]
        return "\n\n".join(f"{name}: {words}" for name, words in said if words)


def _why_absent(entry: ServerEntry) -> str:
    if entry.switched_off:
        return f"switched off by an operator of mcpd (`mcpd enable {entry.name}` brings it back)"
    if entry.disabled:
        return "switched off in mcpd's configuration"
    if is_down(entry):
        return f"down now. {words(entry, entry.trouble)} Its tools appear here once it is up."
    if entry.tools is None and not entry.said.introduction:
        why = entry.tool_list.problem or entry.status.reason or str(entry.status.state)
        return f"not there yet ({answers.one_line(legible(why))}); its tools appear here once it is"
    return ""
