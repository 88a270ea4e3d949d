"""Who shares an instance of a server, and what stands for the directory of those who do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKSPACE = "\0workspace\0"
"""What ${workspace} stands for until an instance is made for one: no value can hold a NUL otherwise."""

WRITTEN = "${workspace}"
"""How that is written."""

IDLE_SECONDS = 600.0
"""Seconds without use after which an instance is ended that not all clients share, if `idle` is absent: longer
than a pause in a conversation, and no browser is kept for a night."""


class Share(StrEnum):
    """Who shares an instance of a server."""

    ALL = "all"
    WORKSPACE = "workspace"
    SESSION = "session"


@attrs.frozen(kw_only=True)
class Instance:
    """Which instance of a server a configuration is for, where clients do not share one."""

    label: str
    """What logs, metrics and `mcpd status` call it: `playwright#12`, `filesystem@~/src/app`."""
    workspace: str | None = None
    """The directory that it works in; None if its clients have named none."""
    capabilities: Mapping[str, object] | None = attrs.field(default=None, repr=False)
    """What its client can do (MCP, `ClientCapabilities`), as its server is told; None: what mcpd passes on."""


def as_written(text: str) -> str:
    """A text of a configuration as it may be shown: with ${workspace} as its author wrote it."""
    return text.replace(WORKSPACE, WRITTEN)
