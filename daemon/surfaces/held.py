"""The refusal of a definition that waits for approval (docs/trust.md)."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import Template, fitting, read_mcpd_uri
from daemon.errors import ToolHeld
from daemon.history.event_words import of_held
from daemon.model import Kind
from daemon.surfaces import answers

if TYPE_CHECKING:
    from daemon.catalog.trust import HeldDefinition
    from daemon.model import ToolKey
    from daemon.surfaces.surface import View

_PLAIN = re.compile(r"[\w.-]{1,40}", re.ASCII)
"""A name that says nothing to a model."""


def refuse_held(view: View, kind: Kind, key: ToolKey | None, name: str) -> None:
    """Raise `ToolHeld` for what waits for approval under this name or a new one, if the profile shows it."""
    entry = None if key is None else view.catalog.servers.get(key[0])
    if key is not None and entry is not None:
        known = entry.list_of(kind)
        own = key[1] if key[1] in known.all else known.renamed.get(key[1], "")
        if own in known.held and _would_offer(view, kind, (key[0], own)):
            raise told_held(known.held[own], name)


def _would_offer(view: View, kind: Kind, key: ToolKey) -> bool:
    server, offer = key[0], view.offer
    if kind is not Kind.TOOL:
        return (
            server in offer.servers_of(kind) and (server, switch_of(kind, key[1])) not in view.catalog.switched
        )
    is_for_client = view.apps or not offer.rules.hides(key)
    return is_for_client and offer.rules.allows(key) and not view.catalog.servers[server].disabled


def told_held(held: HeldDefinition, name: str) -> ToolHeld:
    """The error about a held definition that was asked for by `name`."""
    plain = {what: list(filter(_PLAIN.fullmatch, names)) for what, names in held.change.items()}
    it, why, asked = held.definition, of_held(held.because, plain), name[: answers.MAX_QUOTED]
    # A name that the client has not said is the server's word.
    word = f"{it.server}/{switch_of(it.kind, it.name)}" if name.endswith(it.name) else it.server
    approve = f"mcpd approve {shlex.quote(word)}"
    text = f"{answers.quoted(name)} waits for an operator's approval: {why}. Nothing was sent. `{approve}`"
    text += " approves it, with --diff it shows the change. Tell your user, and use something else until then."
    details = {"server": it.server, "because": str(held.because), str(it.kind): asked, "approve": approve}
    return ToolHeld(text, held=held, **details)


def refuse_held_uri(view: View, uri: str) -> None:
    """Refuse a URI that is, or can come from, a template that waits for approval. Raises `ToolHeld`."""
    said = read_mcpd_uri(uri)
    for server, own in [said] if said else [(server, uri) for server in view.servers]:
        held = view.catalog.servers[server].list_of(Kind.TEMPLATE).held if server in view.servers else {}
        for each in fitting([Template(server=server, text=text) for text in held], own):
            refuse_held(view, Kind.TEMPLATE, (server, each.text), uri)
