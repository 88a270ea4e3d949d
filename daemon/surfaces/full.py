"""The `full` surface: every tool as its server describes it, and `mcpd_status` while a server is down.

Names are qualified only where two servers have the same (`daemon.catalog.naming`). A call is passed on
without its payload being decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.surfaces import calling
from daemon.surfaces.answers import MAX_NAMED
from daemon.surfaces.base import Action, AwaitListing, View
from daemon.surfaces.describing import unlisted
from daemon.surfaces.down import STATUS, down_lines, report, status_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.catalog.offer import Offer, Offered


def tool_in_words(tool: Mapping[str, Any]) -> str:
    """A tool, as `tools/list` has it, as a text for models that are told of their tools in a prompt."""
    schema = msgspec.json.encode(tool["inputSchema"]).decode()
    return f"## {tool['name']}\n{tool.get('description', '').strip()}\nArguments (JSON Schema): {schema}"


class FullSurface:
    """The plain list of tools that clients know from any MCP server."""

    name = "full"
    meta_tools = (STATUS,)
    chosen = False
    """Whether its clients have chosen the servers that they see."""

    def instructions(self, view: View) -> str:
        """The names of the servers, and why some are down; the list of tools says everything else."""
        names = list(view.servers)
        if not names:
            return "No MCP servers are configured."
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        said = f"The tools of these MCP servers: {', '.join(names[:MAX_NAMED])}{more}."
        return "\n".join(filter(None, (said, down_lines(view))))

    def awaits(self, view: View) -> tuple[str, ...]:
        """All servers that have not listed their tools: many clients ask once and never again."""
        return unlisted(view.servers.values())

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """Every tool that the profile offers, after our own."""
        offer: Offer = view.offer
        own = status_tool(view)
        return (*own, *offer.listing) if own else offer.listing

    def listed(self, view: View) -> Sequence[Offered]:
        """Every tool that the profile offers."""
        return view.offer.all

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward to the tool of that name, or say which servers are down."""
        if name == STATUS and STATUS not in view.catalog.names.owners:
            return report(view)
        found = calling.find(view, name, patient=patient, chosen=self.chosen)
        return found if isinstance(found, AwaitListing) else calling.direct(found, arguments)
