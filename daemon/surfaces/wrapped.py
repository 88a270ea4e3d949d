"""Calls of tools through a meta-tool: how they are written, and what their arguments mean.

Nearly all of them are written in one way, with the tool's arguments last: such a call is known by the bytes
before these (`surfaces.surface.WrappedCalls`). Models also flatten, stringify and double-wrap arguments. The
literal reading comes first. Another one is used only if exactly one fits the tool's schema, and it must
account for everything that was sent: nothing is ever dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from daemon.errors import InvalidArguments
from daemon.model import Repair
from daemon.surfaces.explaining import refusal
from daemon.surfaces.validators import Object, Validator, Validators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from daemon.model import Tool


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


WRAPPERS = frozenset({"args", "arguments", "parameters", "params", "input"})
"""Names of members in which models wrap arguments once more."""

MAX_CHECKED = 256 * 1024
"""Bytes of the longest arguments that are validated: longer ones would hold the event loop for milliseconds."""

MAX_LAYERS = 3
"""Nested wrappers and strings that are taken off."""

_NULL = Raw(b"null")


class Read(Struct, frozen=True):
    """Arguments as a tool will get them."""

    arguments: bytes | Raw
    """A raw JSON object: the client's own bytes if nothing had to be repaired."""
    repair: Repair | None
    """What was repaired; None if nothing was."""


class Checker:
    """Reads arguments. Holds compiled schemas and nothing else."""

    def __init__(self) -> None:
        self._validators = Validators()

    def read(
        self,
        tool: Tool | None,
        name: str,
        args: bytes | Raw | None,
        beside: Mapping[str, Raw],
        *,
        example: Callable[[object], object] | None = None,
    ) -> Read:
        """Determine the arguments that a wrapper call means.

        Args:
            tool: the tool; None if its server has not listed it.
            name: what the client called it.
            args: raw JSON from the slot for arguments; None if there was none.
            beside: members that are not the wrapper's own, raw.
            example: makes a whole wrapper call of example arguments, for the error text.

        Raises:
            InvalidArguments: no reading fits, or more than one.
        """
        size = len(args or b"")
        if beside:
            size += sum(len(key) + len(value) for key, value in beside.items())
        sent = _sent(None if args is None else bytes(args), beside, look=size <= MAX_CHECKED)
        validator = self.validator(tool)
        if validator is None or size > MAX_CHECKED:
            fitting = [] if sent.own is None or beside else [sent.own]
        else:
            fitting = _fitting(sent, validator)
        if len(fitting) == 1:
            return fitting[0]
        raise refusal(name, validator, sent.value, list(beside), example, several=bool(fitting))

    def validator(self, tool: Tool | None) -> Validator | None:
        """What judges the arguments of a tool; None if nothing can."""
        return None if tool is None else self._validators.of(tool)


class _Sent(Struct, frozen=True, kw_only=True):
    value: object
    """The value in the slot, decoded, also from within a string that holds an object; None if it cannot be
    decoded, an empty object if there was none."""
    own: Read | None
    """The literal reading of an object, or of a string that holds one; None if it is neither."""
    beside: Object | None
    """The members beside the slot, decoded; None if one cannot be."""


def _sent(args: bytes | None, beside: Mapping[str, Raw], *, look: bool) -> _Sent:
    """Decode what was sent; an object only if `look` is set."""
    others: Object | None = {}
    if beside:
        others = _others(beside) if look else None
    stripped = (args or b"").strip()
    if args is None or stripped == b"null":
        return _Sent(value={}, own=Read(b"{}", None), beside=others)
    if stripped.startswith(b"{"):
        return _Sent(value=_decoded(args) if look else {}, own=Read(args, None), beside=others)
    value = _decoded(args)
    opened = _opened(value)
    if opened is None:
        return _Sent(value=value, own=None, beside=others)
    return _Sent(value=opened, own=Read(msgspec.json.encode(opened), Repair.STRINGIFIED), beside=others)


def _others(beside: Mapping[str, Raw]) -> Object | None:
    others = {key: _decoded(value) for key, value in beside.items()}
    readable = all(value is not None or beside[key] == _NULL for key, value in others.items())
    return others if readable else None


def _decoded(raw: bytes | Raw | str) -> Any:
    """A JSON value; None if it cannot be decoded: 1e400, half of a surrogate pair, too deep nesting."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _fitting(sent: _Sent, validator: Validator) -> list[Read]:
    """The readings that fit; only the literal one if it fits and is not itself a wrapper."""
    own = sent.own if sent.beside == {} else None
    if own is not None and sent.value is not None and not validator.accepts(sent.value):
        own = None
    if own is not None and not _looks_wrapped(sent.value, validator):
        return [own]
    fitting: dict[bytes, Read] = {}
    for reading, repair in _readings(sent):
        if validator.proves(reading) and _declares(validator, reading):
            read = Read(msgspec.json.encode(reading), repair)
            fitting.setdefault(msgspec.json.encode(reading, order="sorted"), read)
    return [own] if own is not None and len(fitting) != 1 else list(fitting.values())


def _readings(sent: _Sent) -> Iterator[tuple[Object, Repair]]:
    """All readings, except the literal one, that account for everything that was sent."""
    value, beside = sent.value, sent.beside
    if sent.own is None or beside is None or not isinstance(value, dict):
        return
    if not beside:
        repair = sent.own.repair or Repair.UNWRAPPED
        yield from ((inner, repair) for inner in _unwrapped(value))
        return
    if not value:
        yield from ((inner, Repair.UNWRAPPED) for inner in _unwrapped(beside))
    if not value.keys() & beside.keys():
        yield {**value, **beside}, Repair.FLATTENED


def _unwrapped(value: Object) -> Iterator[Object]:
    """The objects within one that has a single member named like a wrapper, layer by layer."""
    inner: object = value
    for _ in range(MAX_LAYERS):
        if not isinstance(inner, dict) or len(inner) != 1 or not inner.keys() <= WRAPPERS:
            return
        (inner,) = inner.values()
        inner = _opened(inner) if isinstance(inner, str) else inner
        if isinstance(inner, dict):
            yield inner


def _opened(value: object) -> Object | None:
    """The object that a string holds, perhaps within a further string; None if it holds none."""
    for _ in range(MAX_LAYERS):
        if not isinstance(value, str):
            break
        value = _decoded(value)
        if isinstance(value, dict):
            return value
    return None


def _looks_wrapped(value: object, validator: Validator) -> bool:
    """Whether a valid object is a wrapper after all: its only member is named like one and not declared."""
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= WRAPPERS:
        return False
    declared = validator.schema.get("properties")
    return isinstance(declared, dict) and bool(declared) and not value.keys() & declared.keys()


def _declares(validator: Validator, value: Object) -> bool:
    """Whether a schema declares every member instead of merely tolerating it."""
    schema = validator.schema
    declared = schema.get("properties")
    if not isinstance(declared, dict) or not declared:
        return True
    if schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema:
        return True
    return value.keys() <= declared.keys()
