"""How calls of tools through a meta-tool are written, and taken apart.

Nearly all of them are written in one way, with the tool's arguments last: such a call is known by the bytes
before these (`surfaces.base.WrappedCalls`). In others arguments stand elsewhere, or beside each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.errors import InvalidArguments
from daemon.surfaces.arguments.reading import WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for JSON that is none, or is not what was asked for."""


class Wrapped(Struct, frozen=True, kw_only=True):
    """A wrapper call, taken apart: which tool, and all that might be its arguments."""

    said: Mapping[str, str]
    """The wrapper's own members, the tool's name among them."""
    name: str
    """The name of the tool."""
    wrapper: Wrapper
    """The meta-tool that was called."""
    arguments: Raw | None
    """The value in the slot for arguments; None if there was none."""
    beside: Mapping[str, Raw]
    """Members that are not the wrapper's own."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<Wrapped {self.name}>"

    def example(self, arguments: object) -> object:
        """The same call with other arguments."""
        return {**self.said, self.wrapper.slot: arguments}


class Wrapper:
    """The arguments of a meta-tool that calls others."""

    def __init__(self, slot: str, own: tuple[str, ...], example: str) -> None:
        """Say how they are written.

        Args:
            slot: the member that the tool's arguments belong in: `args` or `arguments`.
            own: the other members, the tool's name last; all of them are required, all are strings.
            example: a correct call, for the error text.
        """
        self.slot = slot
        self._own = own
        self._example = example
        self.opening = b'"%b":{' % slot.encode()
        """What opens the tool's arguments in a call as nearly all are written. No name holds it: in a string
        its quotes are escaped."""

    def head(self, sent: bytes) -> bytes | None:
        """All that stands before the members of the arguments; None if that is not the names alone, compact."""
        wrapped, end = self.unwrap(sent), sent.find(self.opening) + len(self.opening)
        is_compact = end == len(msgspec.json.encode(wrapped.said)) + len(self.opening)
        return sent[:end] if is_compact and not wrapped.beside else None

    def unwrap(self, sent: bytes) -> Wrapped:
        """Take a wrapper call apart, a raw JSON object.

        Raises:
            InvalidArguments: one of the wrapper's own members is missing, or not a string.
        """
        said: dict[str, str] = {}
        try:
            members = _decode_members(sent)
            for key in self._own:
                said[key] = _decode_text(members.pop(key))
        except KeyError as error:
            raise InvalidArguments(
                f"{error.args[0]!r} is missing. Call it like this: {self._example}"
            ) from None
        except _UNREADABLE as error:
            names = ", ".join(self._own)
            raise InvalidArguments(f"{names}: {error}. Call it like this: {self._example}") from None
        arguments = members.pop(self.slot, None)
        if arguments is not None and bytes(arguments) == b"null":
            arguments = None
        if arguments is None and len(members) == 1 and members.keys() <= WRAPPERS:
            # The arguments are in a slot of another name.
            _slot, arguments = members.popitem()
        return Wrapped(said=said, name=said[self._own[-1]], wrapper=self, arguments=arguments, beside=members)
