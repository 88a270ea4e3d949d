"""The MCP list of each kind of definition: its method, member of the result, and identifying member."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from daemon.model import Definition, Kind


class ListOf(msgspec.Struct, frozen=True):
    """The list of one kind of definition (MCP, server features)."""

    method: str
    member: str
    key: str
    capability: str

    @property
    def changed(self) -> str:
        """The notification that the list has changed."""
        return f"notifications/{self.capability}/list_changed"

    @property
    def wish(self) -> str:
        """The member of a `subscriptions/listen` filter that asks for this notification (MCP 2026-07-28)."""
        return f"{self.capability}ListChanged"


LISTS: Mapping[Kind, ListOf] = {
    Kind.TOOL: ListOf("tools/list", "tools", "name", "tools"),
    Kind.PROMPT: ListOf("prompts/list", "prompts", "name", "prompts"),
    Kind.RESOURCE: ListOf("resources/list", "resources", "uri", "resources"),
    Kind.TEMPLATE: ListOf("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
    Kind.SKILL: ListOf("skills/list", "skills", "uri", "resources"),
}
"""Resources, templates and skills share a capability and a notification; an extension declares skills, too."""

BESIDE_TOOLS = (Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE, Kind.SKILL)
"""Kinds that cost models nothing; every surface lists them unchanged."""

SHARING_NAMES: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.TOOL: (Kind.TOOL,),
    Kind.PROMPT: (Kind.PROMPT,),
    Kind.RESOURCE: (Kind.RESOURCE, Kind.TEMPLATE),
}
"""The kinds whose names each table of names holds (`catalog.naming`)."""

NAMED_AS: Mapping[Kind, Kind] = {
    **{kind: first for first, kinds in SHARING_NAMES.items() for kind in kinds},
    Kind.SKILL: Kind.RESOURCE,
}
"""The table of names for each kind. Skills have none, since their URIs name the server (`catalog.naming`)."""

CHANGED: Mapping[str, tuple[Kind, ...]] = {
    changed: tuple(kind for kind, each in LISTS.items() if each.changed == changed)
    for changed in dict.fromkeys(each.changed for each in LISTS.values())
}
"""The kinds whose lists have changed, by the notification."""


def switch_of(kind: Kind, name: str) -> str:
    """An operator's word for a definition: `prompt:NAME`, a tool's bare name, or `tool:NAME` if ambiguous."""
    bare = kind is Kind.TOOL and switched_by(name) == (Kind.TOOL, name)
    return name if bare else f"{kind}:{name}"


def path_of(definition: Definition) -> str:
    """A definition as operators type it: `SERVER/TOOL`, `SERVER/prompt:NAME`."""
    return f"{definition.server}/{switch_of(definition.kind, definition.name)}"


def switched_by(word: str) -> tuple[Kind, str]:
    """The kind, and the name or URI, in an operator's word for a definition."""
    head, separator, name = word.partition(":")
    return (_BY_WORD[head], name) if separator and head in _BY_WORD else (Kind.TOOL, word)


_BY_WORD = {str(kind): kind for kind in Kind}
