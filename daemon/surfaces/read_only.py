"""A second call tool beside a surface's own, for tools that only read, which clients may let through unasked.

Behind one tool that calls all others, a client cannot tell a tool that reads from one that writes: whoever
allows the one in its client allows the other. This tool forwards only what its server annotates as read-only
and the profile's rules do not have its user asked about. Everything else about it is the surface's own call
tool: the same arguments, repaired and refused in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.permissions import annotations_of
from daemon.errors import InvalidArguments
from daemon.surfaces.base import Forward
from daemon.surfaces.describing import READS, meta_tool, typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.catalog.offer import Offered
    from daemon.surfaces.base import Action, Surface, View


class ReadOnlyCalls:
    """A surface with a call tool for read-only tools after its own one."""

    def __init__(self, surface: Surface, call: str, name: str, properties: Mapping[str, str]) -> None:
        """Add the tool to a surface, among whose meta-tools its name stands already.

        Args:
            surface: the surface.
            call: the name of its own call tool.
            name: the name of the tool for read-only tools.
            properties: the types of the call tool's arguments, by name; all of them are required.
        """
        self.name = surface.name
        self.meta_tools = surface.meta_tools
        self._surface = surface
        self._call = call
        self._own = name
        described = f"Prefer this to {call} for tools with readOnlyHint: true."
        self._definition = meta_tool(name, described, typed(properties), tuple(properties), hints=READS)

    def instructions(self, view: View) -> str:
        """Those of the surface."""
        return self._surface.instructions(view)

    def awaits(self, view: View) -> tuple[str, ...]:
        """What the surface awaits."""
        return self._surface.awaits(view)

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """The surface's tools, with this one after its meta-tools, unless the profile has it left out."""
        tools = self._surface.list_tools(view)
        if not view.profile.read_only_call:
            return tools
        first = len(tools) - len(self._surface.listed(view))
        return (*tools[:first], self._definition, *tools[first:])

    def listed(self, view: View) -> Sequence[Offered]:
        """The servers' tools that the surface lists."""
        return self._surface.listed(view)

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward a call that only reads, or do what the surface does."""
        if name != self._own or not view.profile.read_only_call:
            return self._surface.call(view, name, arguments, patient=patient)
        action = self._surface.call(view, self._call, arguments, patient=patient)
        if isinstance(action, Forward):
            self._require(view, action)
        return action

    def _require(self, view: View, forward: Forward) -> None:
        """Refuse what does not only read.

        Raises:
            InvalidArguments: its server does not say that it only reads, or its user is to be asked.
        """
        offered = view.offer.tools.get((forward.server, forward.name))
        if offered is None:
            why = "its server has not listed it yet"
        elif forward.ask is not None:
            why = "mcpd's configuration has the user asked about it"
        elif annotations_of(offered.tool).read_only:
            return
        else:
            why = "its server does not say that it only reads (readOnlyHint)"
        raise InvalidArguments(
            f"{forward.label} is not called by {self._own}: {why}. Nothing was sent. Call {self._call} with the"
            " same arguments.",
            tool=forward.name,
            server=forward.server,
            call=self._call,
        )
