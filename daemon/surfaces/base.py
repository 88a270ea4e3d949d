"""What every surface shares: its view, its answers, and how results and errors are written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypeVar

import attrs
import msgspec

from daemon.errors import CallError, InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.catalog.categories import Category
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.model import Profile

T = TypeVar("T")

MAX_NAMED = 20
"""How many names an error lists: enough to choose from, not enough to fill a context."""

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""Keeps a client from hiding a meta-tool behind a tool search of its own (real-world.md §1.4)."""


@attrs.frozen(kw_only=True)
class View:
    """What a session sees: a moment of the catalog through its profile."""

    catalog: Catalog
    """Everything that exists."""
    profile: Profile
    """What this session may see of it."""
    now: float
    """Seconds since the epoch."""

    @property
    def categories(self) -> Mapping[str, Category]:
        """The categories of the profile, in the configuration's order."""
        allowed = self.profile.categories
        if allowed is None:
            return self.catalog.categories
        return {name: entry for name, entry in self.catalog.categories.items() if name in allowed}


@attrs.frozen
class Reply:
    """The call is answered: this is the result, raw JSON."""

    result: bytes


@attrs.frozen(kw_only=True)
class Forward:
    """The call goes to a server; its result is the answer."""

    server: str
    """Which server."""
    tool: str
    """The tool's bare name there."""
    arguments: bytes | msgspec.Raw = attrs.field(repr=False)
    """A JSON object, as the client wrote it."""
    label: str
    """What the log calls it."""


@attrs.frozen
class AwaitListing:
    """The answer depends on tools that these servers have not listed yet; ask again when they have."""

    servers: tuple[str, ...]


Action = Reply | Forward | AwaitListing


class Surface(Protocol):
    """One family of meta-tools."""

    name: str
    """As `--surface` and profiles call it."""

    def instructions(self, view: View) -> str:
        """How to use it, for the handshake."""

    def list_tools(self, view: View) -> bytes:
        """The tools that a client is shown: a raw JSON array, the same bytes as long as nothing changed."""

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide what a call to a shown tool means.

        Args:
            view: the moment to decide at.
            name: which tool.
            arguments: a raw JSON object.
            patient: whether `AwaitListing` may be the answer; otherwise answer with what is known.

        Raises:
            CallError: the call is refused; `error_result` is what the client gets.
        """


def result(structured: object) -> bytes:
    """A successful result: `structuredContent`, and the same as compact JSON in one text item."""
    encoded = msgspec.json.encode(structured)
    text = msgspec.json.encode(encoded.decode())
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (text, encoded)


def error_result(error: CallError) -> bytes:
    """A refusal that a model can act on (design.md §6, "Errors of a meta-tool")."""
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": f"{error.code}: {error.message}"}],
            "structuredContent": {"error": {"code": error.code, "message": error.message, **error.details}},
            "isError": True,
        }
    )


def decode_arguments(arguments: bytes, shape: type[T], example: str) -> T:
    """Read a meta-tool's arguments.

    Raises:
        InvalidArguments: they do not fit `shape`; the text shows `example`.
    """
    try:
        return msgspec.json.decode(arguments, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"{error}. Call it like this: {example}") from None


def choices(names: Iterable[str], wanted: str) -> str:
    """What an error says after an unknown name: the closest ones, then all, within `MAX_NAMED`."""
    known = list(names)
    close = closest(known, wanted)
    shown = ", ".join(known[:MAX_NAMED]) + (
        f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    )
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}There are: {shown}." if known else f"{hint}There are none."


def closest(names: Iterable[str], wanted: str) -> list[str]:
    """Up to three names that look like the wanted one."""
    return get_close_matches(wanted, list(names), n=3, cutoff=0.6)


def unavailable_entry(entry: ServerEntry, now: float) -> dict[str, object]:
    """How a server that is down is described in `meta.unavailableServers`; `since` in epoch seconds."""
    status = entry.status
    described: dict[str, object] = {
        "state": str(status.state),
        "reason": status.reason,
        "since": round(status.since, 3),
        "attempt": status.attempt,
    }
    if status.next_retry_at is not None:
        described["nextRetryInMs"] = max(0, round((status.next_retry_at - now) * 1000))
    return described
