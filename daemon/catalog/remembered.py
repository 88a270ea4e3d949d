"""What is kept from one run of the daemon to the next, as values. The store writes, the recorder decides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.loaded import Loaded
    from daemon.model import Definition, Kind, Summary, Tool

OTHERS = "uid "
"""Prefix of the keys of other users' sessions; no key that a client names begins so."""

TOKENS = "token "
"""Prefix of the keys of sessions that belong to a token with a name; no key that a client names begins so."""

MAX_KEY = 200
"""Most characters of a session's key: a UUID has 36, a path used as a key may have more."""

ANONYMOUS = "\tanonymous "
"""Marks the keys of unnamed sessions, before the token that their bridge generated; no key that a client names
has a tab in it."""

TOKEN = re.compile(r"[0-9a-f]{32}")
"""A token that a bridge generates for its lifetime: 128 random bits, which cannot be guessed."""


def anonymous_key(token: object) -> str | None:
    """The session key of a bridge that names none; None if `token` is not one that a bridge generates."""
    return f"{ANONYMOUS}{token}" if isinstance(token, str) and TOKEN.fullmatch(token) else None


def is_anonymous(key: str) -> bool:
    """Whether this session has no name of its own."""
    return ANONYMOUS in key


@attrs.frozen(kw_only=True)
class ServerRecord:
    """What is stored of one server."""

    name: str
    """Its configured name."""
    fingerprint: str
    """Fingerprint of the configuration under which its tools were listed."""
    epoch: int
    """Version of its visible capabilities."""
    tools: tuple[Tool, ...] | None = attrs.field(repr=False)
    """Its last known tools, in its order; None if it never listed any."""
    refreshed_at: float
    """When it was last listed, or changed otherwise, in seconds since the epoch."""
    summary: Summary | None = None
    """A model's summary of the server."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """A model's summaries of its tools, by schema hash."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """When each of its tools took its present form, by name, in seconds since the epoch."""
    about: str = attrs.field(default="", repr=False)
    """The server's description of itself."""
    introduction: bytes = attrs.field(default=b"", repr=False)
    """All that it said about itself in its last handshake (`catalog.introduction`); empty if not known."""
    definitions: Mapping[Kind, tuple[Definition, ...]] = attrs.field(factory=dict, repr=False)
    """Its last known prompts, resources and templates, each in its order; an empty list says that it has none,
    so that nobody waits for it to say so."""


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
    """When it was last used, in seconds since the epoch."""
    partial: bool = False
    """Whether it began while the store could not be read: what is stored of it precedes this."""
