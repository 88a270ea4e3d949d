"""The refusal of a definition that waits for approval (docs/trust.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.catalog.kinds import switch_of
from daemon.errors import ToolHeld
from daemon.history.event_words import of_held
from daemon.surfaces import answers

if TYPE_CHECKING:
    from daemon.model import Kind, ToolKey
    from daemon.surfaces.surface import View

_PLAIN = re.compile(r"[\w.-]{1,40}", re.ASCII)
"""A name that says nothing to a model."""


def refusal_of_held(view: View, kind: Kind, key: ToolKey, name: str) -> ToolHeld | None:
    """The error about a definition that waits for approval; None for any other."""
    held = view.catalog.held(key, kind)
    if held is None or key[0] not in view.servers:
        return None
    plain = {what: [each for each in names if _PLAIN.fullmatch(each)] for what, names in held.change.items()}
    word = switch_of(kind, key[1])
    return ToolHeld(
        f"{answers.quoted(name)} waits for an operator's approval: {of_held(held.because, plain)}. Nothing was"
        f" sent. `mcpd approve {key[0]}/{word}` approves it, `mcpd approve {key[0]}/{word} --diff` shows what"
        " changed. Tell your user, and use another tool until then.",
        kind=kind,
        key=key,
        form=held.definition.schema_hash,
        server=key[0],
        because=str(held.because),
        **{str(kind): answers.cut(name, answers.MAX_QUOTED)},
    )
