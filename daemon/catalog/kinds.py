"""How each kind of definition is listed over MCP: the method, the member of the result, the key of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.model import ToolKey


class ListOf(msgspec.Struct, frozen=True):
    """The list of one kind of definition (MCP, server features)."""

    method: str
    """The method that lists it."""
    member: str
    """The member of the result that holds the definitions."""
    key: str
    """The member of a definition that identifies it."""
    capability: str
    """The capability that a server with such a list declares."""

    @property
    def changed(self) -> str:
        """The notification that the list has changed."""
        return f"notifications/{self.capability}/list_changed"

    @property
    def wish(self) -> str:
        """The member of a `subscriptions/listen` filter that asks for that notification (MCP 2026-07-28)."""
        return f"{self.capability}ListChanged"


LISTS: Mapping[Kind, ListOf] = {
    Kind.TOOL: ListOf("tools/list", "tools", "name", "tools"),
    Kind.PROMPT: ListOf("prompts/list", "prompts", "name", "prompts"),
    Kind.RESOURCE: ListOf("resources/list", "resources", "uri", "resources"),
    Kind.TEMPLATE: ListOf("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
}
"""All lists; resources and their templates share a capability and a notification."""

BESIDE_TOOLS = (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE)
"""The kinds that cost a model nothing to list: every surface gives them to clients as they are."""

SHARING_NAMES: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.TOOL: (Kind.TOOL,),
    Kind.PROMPT: (Kind.PROMPT,),
    Kind.RESOURCE: (Kind.RESOURCE, Kind.TEMPLATE),
}
"""The kinds whose names clients tell apart, by the kind that their names are kept under (`catalog.naming`)."""

NAMED_AS: Mapping[Kind, Kind] = {kind: first for first, kinds in SHARING_NAMES.items() for kind in kinds}
"""The kind that the names of each kind are kept under."""

CHANGED: Mapping[str, tuple[Kind, ...]] = {
    changed: tuple(kind for kind, each in LISTS.items() if each.changed == changed)
    for changed in dict.fromkeys(each.changed for each in LISTS.values())
}
"""The kinds whose lists a notification says to have changed."""


def switch_of(kind: Kind, name: str) -> str:
    """How an operator's switch names one of a server's: `prompt:NAME`; a tool goes by its name alone.

    A tool whose own name begins like that is `tool:NAME`, so that no switch of a prompt switches a tool.
    """
    bare = kind is Kind.TOOL and switched_by(name) == (Kind.TOOL, name)
    return name if bare else f"{kind}:{name}"


def switched_by(word: str) -> tuple[Kind, str]:
    """What a switch names: its kind, and its name or URI at its server."""
    head, separator, name = word.partition(":")
    return (_BY_WORD[head], name) if separator and head in _BY_WORD else (Kind.TOOL, word)


def tools_switched_by(words: Iterable[tuple[str, str]]) -> frozenset[ToolKey]:
    """The tools among what operators have switched off; a whole server is none."""
    named = ((server, *switched_by(word)) for server, word in words if word)
    return frozenset((server, name) for server, kind, name in named if kind is Kind.TOOL)


_BY_WORD = {str(kind): kind for kind in Kind}
