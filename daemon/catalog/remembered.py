"""What is kept from one life of the daemon to the next, as values. `store` writes, the recorder decides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.loaded import Loaded
    from daemon.model import Summary, Tool

OTHERS = "uid "
"""The beginning of the keys of other users' sessions; no client's own begins so."""

MAX_KEY = 200
"""Characters of a session's key: a UUID has 36, a path as a key may have more."""

ANONYMOUS = "\tanonymous "
"""Stands in the keys of sessions that nobody has named, before what their bridges made up; no key that anybody
names has a tab in it."""

TOKEN = re.compile(r"[0-9a-f]{32}")
"""What a bridge makes up for its life: 128 random bits, which nobody guesses."""


def anonymous_key(token: object) -> str | None:
    """The key of the session of a bridge that names none; None if that is nothing that a bridge makes up."""
    return f"{ANONYMOUS}{token}" if isinstance(token, str) and TOKEN.fullmatch(token) else None


def is_anonymous(key: str) -> bool:
    """Whether nobody has named this session."""
    return ANONYMOUS in key


@attrs.frozen(kw_only=True)
class ServerRecord:
    """What is known of one server."""

    name: str
    """Its configured name."""
    fingerprint: str
    """Of the configuration that its tools were listed under."""
    epoch: int
    """Version of its visible capabilities."""
    tools: tuple[Tool, ...] | None = attrs.field(repr=False)
    """Its last known tools, in its order; None if it never listed any."""
    refreshed_at: float
    """When it was last listed, or changed otherwise, in seconds since the epoch."""
    summary: Summary | None = None
    """What a model said of it."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """What a model said of its tools, by schema hash."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when each of its tools is as it is, by name, in seconds since the epoch."""
    about: str = attrs.field(default="", repr=False)
    """What it says of itself."""


@attrs.frozen(kw_only=True)
class SessionRecord:
    """A session with a key, or of a bridge."""

    key: str
    """What its connections name it by."""
    loaded: Loaded
    """The tools that the session has loaded."""
    client: str = ""
    """What the client that last used it calls itself."""
    created_at: float = 0.0
    """When it was first named, in seconds since the epoch."""
    seen_at: float = 0.0
    """When somebody last used it."""
    partial: bool = False
    """Whether it was begun while the store could not be read: what is stored of it comes before this."""
